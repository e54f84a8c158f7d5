"""Pools and plans over real workers of this interpreter."""

import sys
from pathlib import Path

import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.settings import Settings

CODE = Path(__file__).parents[1] / "code"


@pytest.fixture
def settings(tmp_path):
    return Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", birth=20.0)


@pytest.fixture
def pool(settings):
    with WorkerPool(settings) as pool:
        yield pool


@pytest.fixture
def plan():
    return EnvPlan.existing(sys.executable, "here", root=CODE)


@pytest.fixture
def make_plan():
    def make(key, python=sys.executable, **more):
        return EnvPlan.existing(python, key, root=CODE, **more)

    return make


@pytest.fixture
def pythons(interpreters):
    """The interpreters found, by (major, minor)."""
    return {tuple(int(part) for part in version.split(".")): path for version, path in interpreters.items()}
