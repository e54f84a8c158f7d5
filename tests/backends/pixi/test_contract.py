"""The whole lifecycle contract on conda environments: made by py-rattler, and by fake_pixi, which delegates to it."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from comfy_env.settings import Settings
from comfy_env.testing.conformance import BackendContract
from comfy_env.values import EnvStatus

pytestmark = pytest.mark.real


class OnACondaEnvironment(BackendContract):
    """The contract, and that it is really the environment's own Python that ran."""

    key = ""

    @pytest.fixture
    def backend(self, made):
        return made

    @pytest.fixture
    def settings(self, made):
        return replace(made.settings, crash_limit=100, runtime_folder=Settings.read().runtime_folder)

    @pytest.fixture
    def plan(self, made, plan):
        """The plan workers are made for, and the other one the contract asks for, built once."""
        wanted = [plan(key, "greeting 1.0.*") for key in (self.key, "contract-other")]
        wanted = [replace(one, backend="backend-under-test") for one in wanted]
        for one in wanted:
            if made.comfy_env_inspect(one, False).status is not EnvStatus.READY:
                made.comfy_env_build(one, print)
        return wanted[0]

    def test_the_worker_lives_in_the_environment(self, stage, made):
        interpreter = made.comfy_env_inspect(stage.plan, False).interpreter
        stage.call("add", 1)
        assert stage.spy.processes[0].pid and interpreter != sys.executable
        assert stage.call("variable", "CONDA_PREFIX") == str(interpreter.parents[1])
        assert stage.call("variable", "GREETING_HOME") == f"{interpreter.parents[1]}/share"


class TestMadeByRattler(OnACondaEnvironment):
    key = "contract-rattler"

    @pytest.fixture
    def made(self, rattled):
        return rattled


class TestMadeByFakePixi(OnACondaEnvironment):
    key = "contract-fake-pixi"

    @pytest.fixture
    def made(self, faked):
        return faked
