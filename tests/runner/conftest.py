"""Small packs of plain Python nodes, and a runner over them on a pool without processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfy_env.runner import Runner, Workflow
from comfy_env.values import EnvPlan

from .fakes import FakePool

NODES = '''
class Give:
    """Gives a number."""
    FUNCTION, RETURN_TYPES, CATEGORY = "run", ("INT",), "test"
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT", {"default": 1, "min": 0, "max": 100})}}
    def run(self, value):
        return (value,)

class Add:
    FUNCTION, RETURN_TYPES, CATEGORY = "run", ("INT",), "test"
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"a": ("INT",), "b": ("INT", {"default": 10})}}
    def run(self, a, b):
        return (a + b,)

class Spread:
    """Gives the numbers below a number, as a list."""
    FUNCTION, RETURN_TYPES, CATEGORY, OUTPUT_IS_LIST = "run", ("INT",), "test", (True,)
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"count": ("INT",)}}
    def run(self, count):
        return (list(range(count)),)

class Sum:
    FUNCTION, RETURN_TYPES, CATEGORY, INPUT_IS_LIST = "run", ("INT",), "test", True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"numbers": ("INT",)}}
    def run(self, numbers):
        return (sum(numbers),)

class Count:
    """Counts its calls."""
    FUNCTION, RETURN_TYPES, CATEGORY = "run", ("INT",), "test"
    def __init__(self):
        self.calls = 0
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT",)}}
    def run(self, value):
        self.calls += 1
        return (self.calls,)

class Show:
    FUNCTION, RETURN_TYPES, CATEGORY, OUTPUT_NODE = "run", ("INT",), "test", True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT",)}}
    def run(self, value):
        return {"ui": {"text": [str(value)]}, "result": (value,)}

class Fail:
    FUNCTION, RETURN_TYPES, CATEGORY = "run", ("INT",), "test"
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT",)}}
    def run(self, value):
        raise ArithmeticError("no good")
'''
START = "from .nodes import *\nfrom . import nodes\n"
MAPPINGS = "NODE_CLASS_MAPPINGS = {n: c for n, c in vars(nodes).items() if isinstance(c, type)}\n"


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., EnvPlan]:
    """`pack(name="a", nodes="…")` writes a pack and returns its plan; more keywords go to the plan."""

    def make(name: str = "a", nodes: str = NODES, start: str = START + MAPPINGS, **plan: Any) -> EnvPlan:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(start, encoding="utf-8")
        (folder / "nodes.py").write_text(nodes, encoding="utf-8")
        return EnvPlan(key=plan.pop("key", f"env-{name.strip()}"), root=folder, **plan)

    return make


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


@pytest.fixture
def runner(pack: Callable[..., EnvPlan], pool: FakePool) -> Runner:
    """A runner over one pack with the nodes above."""
    return Runner(pool, [pack()])


def workflow(**nodes: tuple[str, dict[str, Any]]) -> Workflow:
    """Return a workflow of `id=(class, inputs)`; an id loses its leading letter n: `n1` is node "1"."""
    return Workflow.parse({id.removeprefix("n"): {"class_type": kind, "inputs": inputs} for id, (kind, inputs) in nodes.items()})
