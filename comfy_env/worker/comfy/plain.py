"""Writes what classes declare (INPUT_TYPES, attributes) as JSON that a host can rebuild exactly.

JSON's own types stay as they are. Everything else is a dict with one key that begins with "$": a tuple, a dict whose keys
are not plain, names of files the host lists itself, a dict that takes any name, a type that accepts anything.
"""

from __future__ import annotations

import enum
from typing import Any

from .files import FileNames

PROBE = "comfy_env probe of a name nobody declares"


def encode(value: Any) -> Any:
    """Return the JSON twin of a value; what has none becomes the mark of "accepts anything"."""
    write = _WRITERS.get(type(value))
    return write(value) if write else _other(value)


def _dict(value: dict) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {"$pairs": [[encode(key), encode(item)] for key, item in value.items()]}


def _other(value: Any) -> Any:
    for base, write in _FAMILIES:
        if isinstance(value, base):
            return write(value)
    return _number(value)


def _text(value: str) -> Any:
    """A subclass of str that claims to differ from nothing stands for every type."""
    text = str.__str__(value)
    return {"$any": text} if text != PROBE and not value != PROBE else text  # noqa: SIM202 - `!=` is what packs override


def _open_dict(value: dict) -> Any:
    known = _dict(dict(value.items()))
    return {"$open": known} if PROBE in value else known


def _number(value: Any) -> Any:
    item = getattr(value, "item", None)   # numpy's scalars
    if callable(item) and type(value).__module__ == "numpy":
        return encode(item())
    return {"$any": "*", "of": type(value).__name__}


_WRITERS: dict[type, Any] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    int: lambda value: value,
    float: lambda value: value,
    str: lambda value: value,
    list: lambda value: [encode(item) for item in value],
    tuple: lambda value: {"$tuple": [encode(item) for item in value]},
    dict: _dict,
    FileNames: lambda value: {"$files": [part if isinstance(part, str) else [encode(item) for item in part] for part in value.parts]},
}
_FAMILIES: list[tuple[Any, Any]] = [
    (enum.Enum, lambda value: encode(value.value)),
    (str, _text),
    (bool, bool),
    (int, int),
    (float, float),
    (dict, _open_dict),
    (tuple, lambda value: {"$tuple": [encode(item) for item in value]}),
    (list, lambda value: [encode(item) for item in value]),
    ((set, frozenset, range, type({}.keys()), type({}.values())), lambda value: [encode(item) for item in value]),
]
