"""The machine knows no clock, lock, thread, logger, future or hook."""

from __future__ import annotations

import ast
from pathlib import Path

from comfy_env import lifecycle

ALLOWED = {"__future__", "collections.abc", "dataclasses", "enum", "operator", "typing"}
OURS = ("comfy_env.lifecycle", "comfy_env.errors", "comfy_env.settings", "comfy_env.values")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "comfy_env":
            names |= {f"comfy_env.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_the_machine_imports_nothing_that_acts():
    files = sorted(Path(lifecycle.__file__).parent.glob("*.py"))
    foreign = {(path.name, name) for path in files for name in imported(path) if name not in ALLOWED and not name.startswith(OURS)}
    assert len(files) > 10 and foreign == set()


def test_the_machine_calls_nothing_that_acts():
    called = {
        node.func.id
        for path in Path(lifecycle.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called.isdisjoint({"print", "open", "input", "exec", "eval", "setattr"})
