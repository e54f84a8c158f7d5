"""Reads what a worker wrote of a class's declarations (INPUT_TYPES, attributes) back into the values core looks at.

The writing half is `comfy_env/worker/comfy/plain.py`: JSON, with dicts of one "$" key for what JSON lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Files = Callable[[str], list[str]]
"""Lists the files of one of ComfyUI's folders by the folder's name."""


class Anything(str):
    """A type's name that differs from no other, as packs write it: core asks `!=` of two types, and `==` of a known one."""

    def __ne__(self, other: object) -> bool:
        return False


class OpenInputs(dict):
    """A dict of inputs that takes every name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return (Anything("*"),)


def decode(value: Any, files: Files = lambda folder: []) -> Any:
    """Return the value that was written; `files` lists folders that the host lists itself."""
    if isinstance(value, list):
        return [decode(item, files) for item in value]
    if not isinstance(value, dict):
        return value
    read = _READERS.get(next(iter(value), ""))
    if read is not None:
        return read(value, files)
    return {key: decode(item, files) for key, item in value.items()}


def _files(value: dict[str, Any], files: Files) -> list[Any]:
    """Return the names of a folder's files now, and the lists that stood beside it."""
    names: list[Any] = []
    for part in value["$files"]:
        names += files(part) if isinstance(part, str) else decode(part, files)
    return names


_READERS: dict[str, Callable[[dict[str, Any], Files], Any]] = {
    "$tuple": lambda value, files: tuple(decode(item, files) for item in value["$tuple"]),
    "$pairs": lambda value, files: {decode(key, files): decode(item, files) for key, item in value["$pairs"]},
    "$any": lambda value, files: Anything(value["$any"]),
    "$open": lambda value, files: OpenInputs(decode(value["$open"], files)),
    "$files": _files,
}
