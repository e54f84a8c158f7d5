"""Pools over real workers of this interpreter, and over a backend of a test's own: what several rooms ask of their conftest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.hooks import Registry
from comfy_env.settings import Settings

CODE = Path(__file__).parent / "code"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", birth=20.0)


@pytest.fixture
def pool(settings) -> Iterator[WorkerPool]:
    with WorkerPool(settings) as pool:
        yield pool


@pytest.fixture
def plan() -> EnvPlan:
    return EnvPlan.existing(sys.executable, "here", root=CODE)


@pytest.fixture
def make_plan():
    """`make_plan(key)` gives more plans, of other interpreters too."""

    def make(key: str, python: str | Path = sys.executable, **more: Any) -> EnvPlan:
        return EnvPlan.existing(python, key, root=CODE, **more)

    return make


@pytest.fixture
def pythons(interpreters):
    """The interpreters found, by (major, minor)."""
    return {tuple(int(part) for part in version.split(".")): path for version, path in interpreters.items()}


def pool_over(settings: Settings, backend: object, name: str = "scripted", **more: Any) -> WorkerPool:
    """Return a pool whose plans may name this backend, and no other of a pack's."""
    registry = Registry(find=lambda group: ())
    registry.register(name, backend)
    return WorkerPool(settings, registry=registry, **more)
