"""The project's sources as the house tests see them: modules, their syntax trees, and who imports whom."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Module(NamedTuple):
    """One source file. ``name`` is dotted; a package's is its own name."""

    name: str
    path: Path
    tree: ast.Module
    lines: tuple[str, ...]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def where(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def script(path: str) -> ModuleType:
    """Import a script of the project, which is no part of any package."""
    spec = importlib.util.spec_from_file_location(path.removesuffix(".py").replace("/", "_"), ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def modules() -> dict[str, Module]:
    """Every module of comfy_env by name."""
    found = {}
    for path in sorted((ROOT / "comfy_env").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, ast.parse(text, str(path)), tuple(text.splitlines()))
    return found


def imported(module: Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield what a module imports, at any depth, as absolute dotted names: `from a import b` yields a.b if that is a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield (deeper if deeper in modules() else base), node


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts if module.is_package else parts[:-1]
    kept = kept[: len(kept) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


@cache
def edges() -> dict[str, frozenset[str]]:
    """Which module of ours imports which, the way Python sees it; a package's own modules do not count as importing it."""
    return {
        name: frozenset(target for target, _ in imported(module)
                        if target in modules() and target != name and not name.startswith(target + "."))
        for name, module in modules().items()
    }


def cycles(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """Return every group of nodes that reach each other (Tarjan's components with more than one node)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
