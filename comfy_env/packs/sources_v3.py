"""Reads V3 classes from sources, for a pack whose environment was never built: enough to list them and to be told what to do.

A class that is read so stands as one of the V1 kind, whose inputs are those that are written out. It becomes what it is
when ComfyUI starts again after the build.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

Literal = Callable[[ast.expr], Any]
"""Returns a literal in a snapshot's form, an object that is no dict, list, text or number for what is computed."""

_PLAIN = (str, int, float, bool, list)


def described(tree: ast.Module, literal: Literal) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield node id, display name and description of each class of a file whose schema has a written id."""
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        schema = _schema(cls)
        if schema is None:
            continue
        written = {word.arg: word.value for word in schema.keywords if word.arg}
        told = {name: value for name, node in written.items() if isinstance(value := literal(node), _PLAIN)}
        id = told.get("node_id")
        if isinstance(id, str):
            yield id, str(told.get("display_name", "")), _description(cls, written, told, literal)


def _schema(cls: ast.ClassDef) -> ast.Call | None:
    """Return the call of `io.Schema(…)` that the class's `define_schema` returns."""
    function = next((item for item in cls.body if isinstance(item, ast.FunctionDef) and item.name == "define_schema"), None)
    returned = [item.value for item in getattr(function, "body", ()) if isinstance(item, ast.Return)]
    return next((call for call in returned if isinstance(call, ast.Call) and _name(call.func) == "Schema"), None)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _description(cls: ast.ClassDef, written: dict[str, ast.expr], told: dict[str, Any], literal: Literal) -> dict[str, Any]:
    outputs = _listed(written.get("outputs"))
    attributes = {
        "FUNCTION": "execute", "CATEGORY": told.get("category", "sd"), "RETURN_TYPES": {"$tuple": [_type(one) for one in outputs]},
        "OUTPUT_NODE": told.get("is_output_node", False), "DESCRIPTION": told.get("description", ""),
    }
    is_async = any(isinstance(item, ast.AsyncFunctionDef) and item.name == "execute" for item in cls.body)
    return {
        "api": "v1", "as_read": True, "class": cls.name, "attributes": attributes, "methods": {},
        "input": _inputs(_listed(written.get("inputs")), literal),
        "function": {"args": ["self"], "keywords": [], "more": True, "async": is_async},
    }


def _listed(node: ast.expr | None) -> list[ast.Call]:
    return [item for item in node.elts if isinstance(item, ast.Call)] if isinstance(node, ast.List) else []


def _inputs(calls: list[ast.Call], literal: Literal) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {"required": {}, "optional": {}}
    for call in calls:
        said = {word.arg: value for word in call.keywords if word.arg and isinstance(value := literal(word.value), _PLAIN)}
        name = literal(call.args[0]) if call.args else said.get("id")
        if isinstance(name, str):
            options = {key: value for key, value in said.items() if key not in ("id", "optional", "display_name")}
            groups["optional" if said.get("optional") is True else "required"][name] = {"$tuple": [_type(call), options]}
    return {name: group for name, group in groups.items() if group}


def _type(call: ast.Call) -> Any:
    """Return the type of `io.Int.Input(…)` or `io.Image.Output(…)`: "INT", "IMAGE"; what has another form takes anything."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = _name(owner) if owner is not None else ""
    return {"$any": "*"} if name in ("", "AnyType") or not name[0].isupper() else name.upper()
