"""Reads what a pack's sources say of its classes without running them, for a pack whose environment was never built.

Only what stands there literally is known: names, types, categories, most inputs. What is computed accepts anything, and the
worker decides once there is one.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from comfy_env.packs import sources_v3
from comfy_env.packs.snapshot import Snapshot

METHODS = ("IS_CHANGED", "VALIDATE_INPUTS", "check_lazy_status")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ANYTHING: dict[str, Any] = {"$open": {}}


def read_sources(folder: Path, packages: Iterable[str] = ()) -> Snapshot:
    """Return what the sources of a pack tell; a file that cannot be parsed tells nothing."""
    files = [tree for path in _files(folder, tuple(packages)) if (tree := _parsed(path)) is not None]
    classes = {node.name: node for tree in files for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    mapped = {name: cls for tree in files for name, cls in _mapping(tree, "NODE_CLASS_MAPPINGS").items()}
    names = {name: text for tree in files for name, text in _mapping(tree, "NODE_DISPLAY_NAME_MAPPINGS").items() if isinstance(text, str)}
    nodes = {name: _described(classes.get(_class_name(cls)), classes) for name, cls in mapped.items()}
    for id, name, node in (found for tree in files for found in sources_v3.described(tree, _literal)):
        nodes[id] = node
        names.update({id: name} if name else {})
    return Snapshot(nodes=nodes, names=names, origin="sources")


def _files(folder: Path, packages: tuple[str, ...]) -> list[Path]:
    if not packages:
        return sorted(path for path in folder.rglob("*.py") if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    found: list[Path] = []
    for package in packages:
        place = folder.joinpath(*package.split("."))
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return found


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None


def _mapping(tree: ast.Module, name: str) -> dict[str, Any]:
    """Return a dict that is written out at the top of a module: its literal keys, and what stands behind them."""
    found: dict[str, Any] = {}
    for statement in tree.body:
        for value in _assigned(statement, name):
            found.update(_pairs(value))
    return found


def _assigned(statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    """Yield the dicts a statement gives a name: by assignment, by `name.update({...})`, by `name["key"] = value`."""
    if isinstance(statement, ast.Expr):
        yield from _updated(statement.value, name)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return
    value = statement.value
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        if _is_name(target, name):
            yield value
        elif isinstance(target, ast.Subscript) and _is_name(target.value, name):
            yield ast.Dict(keys=[target.slice], values=[value])


def _updated(call: ast.expr, name: str) -> Iterator[ast.expr]:
    function = getattr(call, "func", None)
    if isinstance(call, ast.Call) and isinstance(function, ast.Attribute) and function.attr == "update" and _is_name(function.value, name):
        yield from call.args


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _pairs(value: ast.expr) -> dict[str, Any]:
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return {key.value: _text_or_node(item) for key, item in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    if isinstance(value, ast.DictComp) and isinstance(value.generators[0].iter, (ast.Tuple, ast.List)):
        return {item.id: item for item in value.generators[0].iter.elts if isinstance(item, ast.Name)}   # {c.__name__: c for c in (A, B)}
    return {}


def _text_or_node(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else node


def _class_name(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _described(cls: ast.ClassDef | None, classes: Mapping[str, ast.ClassDef]) -> dict[str, Any]:
    """Return a V1 class's description as far as its source tells it."""
    lines = list(_lineage(cls, classes))
    attributes: dict[str, Any] = {"RETURN_TYPES": {"$tuple": [{"$any": "*"}]}}
    attributes.update((name, value) for one in reversed(lines) for name, value in _literals(one))
    functions = {item.name: item for one in reversed(lines) for item in one.body if isinstance(item, _FUNCTIONS)}
    function = functions.get(_plain(attributes.get("FUNCTION")) or "")
    return {
        "api": "v1",
        "input": _inputs(functions.get("INPUT_TYPES")),
        "function": _signature(function),
        "methods": {name: _signature(functions[name]) for name in METHODS if name in functions},
        "attributes": attributes,
        **({"class": cls.name} if cls is not None else {}),
    }


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _lineage(cls: ast.ClassDef | None, classes: Mapping[str, ast.ClassDef], depth: int = 0) -> Iterator[ast.ClassDef]:
    if cls is None or depth > 20:
        return
    yield cls
    for base in cls.bases:
        yield from _lineage(classes.get(_class_name(base)), classes, depth + 1)


def _literals(cls: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for item in cls.body:
        if isinstance(item, ast.Assign):
            for name, value in _named(item):
                if name.isupper():
                    written = _literal(value)
                    if written is not _UNKNOWN:
                        yield name, written


def _named(item: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that an assignment gives, with its value: `A = x`, `A = B = x`, `A, B = x, y`."""
    for target in item.targets:
        if isinstance(target, ast.Name):
            yield target.id, item.value
        elif isinstance(target, ast.Tuple) and isinstance(item.value, ast.Tuple) and len(target.elts) == len(item.value.elts):
            yield from ((one.id, value) for one, value in zip(target.elts, item.value.elts, strict=True) if isinstance(one, ast.Name))


_UNKNOWN: Any = object()


def _literal(node: ast.expr) -> Any:
    """Return a literal in a snapshot's form, `_UNKNOWN` for what is computed."""
    if isinstance(node, ast.Tuple):
        return {"$tuple": [_or_anything(item) for item in node.elts]}
    if isinstance(node, ast.List):
        return [_or_anything(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): _or_anything(value) for key, value in pairs if isinstance(key, ast.Constant)}
    value = _number(node)
    if value is not None:
        return value
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return _UNKNOWN
    return value if isinstance(value, (str, int, float, bool, type(None))) else _UNKNOWN


_SUMS: dict[type[ast.operator], Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}


def _number(node: ast.expr, depth: int = 0) -> int | float | None:
    """Return a number written as a short sum of numbers (`2**32 - 1`), None for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value if depth and abs(node.value) < 1 << 64 else None   # type: ignore[return-value, arg-type]
    if not isinstance(node, ast.BinOp) or type(node.op) not in _SUMS or depth > 4:
        return None
    left, right = _number(node.left, depth + 1), _number(node.right, depth + 1)
    if left is None or right is None or (isinstance(node.op, ast.Pow) and abs(right) > 64):
        return None
    found = _SUMS[type(node.op)](left, right)
    return found if isinstance(found, (int, float)) and abs(found) <= 1 << 64 else None


def _or_anything(node: ast.expr) -> Any:
    written = _literal(node)
    return {"$any": "*"} if written is _UNKNOWN else written


def _inputs(function: Any) -> Any:
    """Return what INPUT_TYPES returns if it is one literal; anything at all otherwise."""
    returned = [item.value for item in getattr(function, "body", ()) if isinstance(item, ast.Return)]
    if len(returned) != 1 or not isinstance(returned[0], ast.Dict):
        return {"required": {}, "optional": _ANYTHING}
    groups = {group: part for group, part in _literal(returned[0]).items() if isinstance(part, dict)}
    return {group: _ANYTHING if "$any" in part else {name: _as_input(one) for name, one in part.items()} for group, part in groups.items()}


def _as_input(written: Any) -> Any:
    """Return an input as core reads it: a tuple whose first part is its type, and whose options are those that are known."""
    parts = written.get("$tuple", [written]) if isinstance(written, dict) else written
    return {"$tuple": [_known(part) if slot else part for slot, part in enumerate(parts)]} if isinstance(parts, list) else parts


def _known(options: Any) -> Any:
    """Return an input's options without those that are computed: core compares values with what it finds there."""
    if not isinstance(options, dict):
        return options
    return {name: value for name, value in options.items() if not (isinstance(value, dict) and "$any" in value)}


def _signature(function: Any) -> dict[str, Any]:
    if function is None:
        return {"args": ["self"], "keywords": [], "more": True, "async": False}
    args = function.args
    return {
        "args": [one.arg for one in (*args.posonlyargs, *args.args)],
        "keywords": [one.arg for one in args.kwonlyargs],
        "more": args.kwarg is not None,
        "async": isinstance(function, ast.AsyncFunctionDef),
    }
