"""comfy-env-minimal keeps the contract, and says what it has no interpreter for."""

import sys
from pathlib import Path

import comfy_env_minimal as minimal
import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.errors import EnvNotBuilt
from comfy_env.hooks import Registry, Relay
from comfy_env.hooks.sources import BACKENDS, Offer
from comfy_env.testing.conformance import BackendContract
from comfy_env.values import Conda, EnvStatus

HERE = Path(minimal.__file__)


class TestMinimal(BackendContract):
    @pytest.fixture
    def backend(self):
        return minimal


@pytest.fixture
def relay():
    return Relay("minimal", minimal)


def test_it_is_small_enough_to_be_read_in_one_sitting():
    assert len(HERE.read_text(encoding="utf-8").splitlines()) <= 120


def test_its_entry_point_resolves_to_the_backend():
    lines = HERE.with_name("setup.cfg").read_text(encoding="utf-8").splitlines()
    name, target = next(line.strip().split(" = ") for line in lines if line.startswith("    minimal = "))
    found = Registry(find=lambda group: [Offer(name, target, "comfy-env-minimal")] if group == BACKENDS else [])
    assert found.backend("minimal").backend is minimal


@pytest.mark.parametrize("probe", [True, False])
def test_a_plan_without_a_python_gets_this_interpreter(relay, probe):
    state = relay.inspect(EnvPlan(key="x"), probe)
    assert (state.status, state.interpreter) == (EnvStatus.READY, Path(sys.executable))


def test_a_version_is_found_on_the_search_path(relay, tmp_path, monkeypatch):
    version = "{}.{}".format(*sys.version_info)
    (tmp_path / f"python{version}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    for wanted in (version, f">={version}"):
        assert relay.inspect(EnvPlan(key="x", python=wanted), True).interpreter == tmp_path / f"python{version}"


def test_a_version_that_is_not_there_is_missing_by_name(relay, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    state = relay.inspect(EnvPlan(key="x", python="3.10"), True)
    assert state.status is EnvStatus.MISSING and "3.10" in state.reason and state.fix


def test_a_program_that_only_looks_like_a_python_does_not_count(relay, tmp_path, monkeypatch):
    (tmp_path / "python3.12").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3.12").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert relay.inspect(EnvPlan(key="x", python="3.12"), False).status is EnvStatus.MISSING
    assert relay.inspect(EnvPlan.existing(tmp_path / "python3.12", key="x"), True).status is EnvStatus.BROKEN


@pytest.mark.parametrize("more", [{"dependencies": ("numpy",)}, {"conda": Conda()}], ids=["dependencies", "conda"])
def test_a_plan_with_dependencies_is_sent_elsewhere(relay, more):
    state = relay.inspect(EnvPlan(key="x", **more), False)
    assert state.status is EnvStatus.BROKEN and "installs nothing" in state.reason


def test_a_call_to_an_environment_without_interpreter_fails_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    registry = Registry(find=lambda group: [])
    registry.register("minimal", minimal)
    with WorkerPool(registry=registry) as pool, pytest.raises(EnvNotBuilt, match="3.10"):
        pool.call(EnvPlan(key="x", backend="minimal", python="3.10"), "os:getpid")
