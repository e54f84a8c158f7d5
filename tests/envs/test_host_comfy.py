"""`comfy = true` adds what ComfyUI's sources import, at the host's versions, and names clashes."""

import pytest

from comfy_env.envs import host_comfy
from comfy_env.values import EnvPlan

HOST = {"numpy": "2.1.0", "einops": "0.8.1", "tqdm": "4.66.0"}


@pytest.fixture(autouse=True)
def host(monkeypatch):
    monkeypatch.setattr(host_comfy, "host_version", lambda name: HOST.get(name, ""))


def test_a_plan_without_it_gets_nothing():
    assert host_comfy.lines(EnvPlan("a")) == host_comfy.clashes(EnvPlan("a", dependencies=("numpy<2",))) == ()


def test_the_hosts_versions_are_added_but_for_what_the_plan_names():
    plan = EnvPlan("a", comfy=True, dependencies=("Einops", "trimesh"))
    assert host_comfy.lines(plan) == ("numpy==2.1.0", "tqdm==4.66.0")
    assert host_comfy.clashes(plan) == ()


def test_a_clash_names_both_versions():
    (told,) = host_comfy.clashes(EnvPlan("a", comfy=True, dependencies=("numpy<2",)))
    assert "numpy 2.1.0" in told and "numpy<2" in told


def test_a_line_that_is_no_requirement_is_left_to_the_build():
    assert host_comfy.clashes(EnvPlan("a", comfy=True, dependencies=("-r x",))) == ()
