"""Writes a V3 schema as JSON: which classes of ComfyUI's `io` module its parts are, and what they hold."""

from __future__ import annotations

import enum
import sys
from typing import Any

from . import plain


def encode(schema: Any) -> dict[str, Any]:
    """Return the JSON twin of what `define_schema` returned."""
    return {name: _part(value) for name, value in vars(schema).items()}


def _part(value: Any) -> Any:
    if type(value) in (list, tuple):
        return {"$list": [_part(item) for item in value]}
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return plain.encode(value)
    if isinstance(value, enum.Enum) and _module() is not None and type(value) is vars(_module()).get(type(value).__name__):
        return {"$member": [type(value).__name__, value.name]}
    if isinstance(value, type):
        return _type(value)
    if _is_of_io(type(value)):
        return _object(value)
    return plain.encode(value)


def _object(value: Any) -> dict[str, Any]:
    """Return an input, an output or another object of the `io` module with its content."""
    state = {name: _part(item) for name, item in vars(value).items()}
    parent = getattr(value, "Parent", None)
    if parent is None:
        return {"$object": type(value).__qualname__, "state": state}
    side = "Output" if _is_output(value) else "Input"
    return {"$io": side, **_type(parent), "state": state}


def _type(cls: type) -> dict[str, Any]:
    """Return how the host finds a type: by its name in `io`, or as a custom one."""
    owner = getattr(cls, "Parent", None) or cls
    if vars(_module()).get(owner.__name__) is owner:
        return {"$type": owner.__name__}
    return {"$type": None, "custom": str.__str__(getattr(owner, "io_type", "*") or "*")}


def _is_output(value: Any) -> bool:
    return isinstance(value, _module().Output)


def _is_of_io(cls: type) -> bool:
    module = _module()
    return module is not None and any(base.__module__ == module.__name__ for base in cls.__mro__)


def _module() -> Any:
    """Return the module that defines the types; only a pack that uses it makes schemas."""
    return sys.modules.get("comfy_api.latest._io")
