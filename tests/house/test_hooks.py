"""Every hook has a test that names it, and its page of the reference says what the code says."""

from __future__ import annotations

import ast

import pytest

from .tree import ROOT, functions, modules

SPECS = ("comfy_env.hooks.specs", "comfy_env.hooks.provision", "comfy_env.hooks.observe", "comfy_env.hooks.agents")


def hooks() -> list[ast.FunctionDef]:
    return [node for name in SPECS for node in functions(modules()[name].tree)
            if isinstance(node, ast.FunctionDef) and node.name.startswith("comfy_env_")]


def _tests_text() -> str:
    here = ROOT / "tests" / "house"
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "plugins").glob("*/tests/**/*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if here not in path.parents)


@pytest.fixture(scope="module")
def all_tests() -> str:
    return _tests_text()


@pytest.mark.parametrize("hook", [node.name for node in hooks()])
def test_a_hook_is_named_by_a_test(hook: str, all_tests: str):
    assert hook in all_tests, f"no test names {hook}"


@pytest.mark.parametrize("node", hooks(), ids=lambda node: node.name)
def test_a_hooks_page_has_its_signature(node: ast.FunctionDef):
    arguments = ", ".join(f"{argument.arg}: {ast.unparse(argument.annotation)}" for argument in node.args.args[1:] if argument.annotation)
    signature = f"{node.name}({arguments}) -> {ast.unparse(node.returns) if node.returns else 'None'}"
    assert signature in (ROOT / "docs" / "reference" / "hooks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("node", hooks(), ids=lambda node: node.name)
def test_a_hook_has_a_docstring(node: ast.FunctionDef):
    assert ast.get_docstring(node)
