"""Habits that keep the house livable, checked from the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .tree import ROOT, Module, functions, modules

ENVIRON_HOMES = ("comfy_env.settings", "comfy_env.process.launch", "comfy_env.worker.__main__")
INSIDE_WORKERS = "comfy_env.testing.guest"  # programs that tests run in a worker to see what it was given
LONGEST_FUNCTION = 60
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def every(kind: type | tuple[type, ...]) -> Iterator[tuple[Module, ast.AST]]:
    return ((module, node) for module in modules().values() for node in ast.walk(module.tree) if isinstance(node, kind))


def told(found: list[str]) -> str:
    return "\n" + "\n".join(found)


def test_no_state_is_kept_in_globals():
    found = [module.where(node) for module, node in every(ast.Global)]
    assert not found, told(found)


def test_only_the_command_line_and_the_runner_print():
    found = [module.where(node) for module, node in every(ast.Call)
             if isinstance(node.func, ast.Name) and node.func.id == "print" and module.name.split(".")[1:2] not in (["cli"], ["runner"])
             and not _to_stderr(module, node)]
    assert not found, told(found)


def _to_stderr(module: Module, node: ast.Call) -> bool:
    """A worker's boot has no logger yet and may say why it ends."""
    return module.name.startswith("comfy_env.worker") and any(keyword.arg == "file" for keyword in node.keywords)


def test_no_except_swallows_silently():
    found = [module.where(node) for module, node in every(ast.ExceptHandler) if all(_does_nothing(part) for part in node.body)]
    assert not found, told(found)


def _does_nothing(part: ast.stmt) -> bool:
    return isinstance(part, ast.Pass | ast.Continue) or (isinstance(part, ast.Return) and part.value is None)


def test_a_broad_except_states_its_reason():
    found = [module.where(node) for module, node in every(ast.ExceptHandler) if _is_broad(node) and not _has_comment(module, node)]
    assert not found, told(found)


def _is_broad(node: ast.ExceptHandler) -> bool:
    names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(name is None or (isinstance(name, ast.Name) and name.id in ("Exception", "BaseException")) for name in names)


def _has_comment(module: Module, node: ast.ExceptHandler) -> bool:
    around = module.lines[node.lineno - 2: node.body[0].lineno]
    return any("#" in line for line in around) or _raises_again(node)


def _raises_again(node: ast.ExceptHandler) -> bool:
    return isinstance(node.body[-1], ast.Raise)


def test_errors_are_named():
    found = [module.where(node) for module, node in every(ast.Raise)
             if isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
             and node.exc.func.id in ("RuntimeError", "Exception", "NotImplementedError")]
    assert not found, told(found)


def test_no_function_is_longer_than_a_screen():
    found = [f"{module.where(node)} {node.name}: {node.end_lineno - node.lineno + 1} lines" for module in modules().values()
             for node in functions(module.tree) if node.end_lineno - node.lineno + 1 >= LONGEST_FUNCTION]
    assert not found, told(found)


def test_no_command_goes_through_a_shell():
    found = [module.where(node) for module, node in every(ast.Call)
             if any(keyword.arg == "shell" for keyword in node.keywords) or _is_os_system(node)]
    assert not found, told(found)


def _is_os_system(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in ("system", "popen") and \
        isinstance(node.func.value, ast.Name) and node.func.value.id == "os"


def test_the_environment_is_read_in_three_files_only():
    found = [module.where(node) for module, node in every((ast.Attribute, ast.ImportFrom))
             if module.name not in ENVIRON_HOMES and not module.name.startswith(INSIDE_WORKERS) and _reads_environment(node)]
    assert not found, told(found)


def _reads_environment(node: ast.AST) -> bool:
    names = ("environ", "environb", "getenv", "putenv")
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in names for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.value, ast.Name) and node.value.id == "os"


def test_nothing_is_left_unfinished():
    found = [f"{module.path.relative_to(ROOT)}:{number}" for module in modules().values()
             for number, line in enumerate(module.lines, 1) if UNFINISHED.search(line)]
    assert not found, told(found)


def test_every_public_module_says_what_it_promises():
    found = [str(module.path.relative_to(ROOT)) for module in modules().values() if module.lines and not ast.get_docstring(module.tree)]
    assert not found, told(found)
