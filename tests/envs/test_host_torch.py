"""`torch = "host"` adds the host's torch with the rest of its family, the exact build first and what is surely to be had last."""

import pytest

from comfy_env.envs import host_comfy, host_torch
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvPlan

PLAN = EnvPlan("a", torch="host")


@pytest.fixture
def host(monkeypatch):
    """Say what the host has: `host(torch="2.8.0+cu128", torchvision="0.23.0+cu128")`."""

    def has(torch, **family):
        monkeypatch.setattr(host_torch, "host_version", lambda: torch)
        monkeypatch.setattr(host_torch, "member_version", lambda name: family.get(name, ""))

    return has


def lines(plan=PLAN):
    return [wish.requirements for wish in host_torch.wishes(plan, Settings())]


def test_what_the_host_has_of_the_family_comes_with_its_torch(host):
    host("2.8.0+cu128", torchvision="0.23.0+cu128", torchaudio="2.8.0+cu128")
    assert lines() == [("torch==2.8.0+cu128", "torchvision==0.23.0+cu128", "torchaudio==2.8.0+cu128"),
                       ("torch==2.8.0", "torchvision==0.23.0", "torchaudio==2.8.0"), ("torch==2.8.0",)]
    assert "with torchvision==0.23.0, torchaudio==2.8.0" in host_torch.likely(host_torch.wishes(PLAN, Settings())).remarks


def test_a_host_with_torch_alone_adds_torch_alone(host):
    host("2.8.0")
    assert lines() == [("torch==2.8.0",)]


def test_one_that_the_plan_names_is_the_plans(host):
    host("2.8.0", torchvision="0.23.0", torchaudio="2.8.0")
    assert lines(EnvPlan("a", torch="host", dependencies=("torchvision>=0.20",)))[0] == ("torch==2.8.0", "torchaudio==2.8.0")


def test_what_comfyui_imports_does_not_ask_for_the_family_twice(host, monkeypatch):
    host("2.8.0", torchvision="0.23.0")
    monkeypatch.setattr(host_comfy, "host_version", {"torchvision": "0.23.0", "numpy": "2.1.0"}.get)
    assert host_comfy.lines(EnvPlan("a", torch="host", comfy=True)) == ("numpy==2.1.0",)
    assert host_comfy.lines(EnvPlan("a", torch="own", comfy=True)) == ("numpy==2.1.0", "torchvision==0.23.0")


def test_a_conda_environment_gets_what_comfyui_imports_but_for_what_it_has_from_conda(monkeypatch):
    from comfy_env.backends.pixi.making import comfy_lines

    monkeypatch.setattr(host_comfy, "host_version", {"numpy": "2.1.0", "pillow": "11.0", "tqdm": "4.66.0"}.get)
    plan = EnvPlan("a", comfy=True, dependencies=("tqdm",), conda=Conda((), ("Pillow >=10",)))
    assert comfy_lines(plan) == ("numpy==2.1.0",)
