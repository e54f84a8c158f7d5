"""Menus of a worker that cannot be asked: their entries may be out of date, so a value that is not among them is let through.

The node decides then, as it would about a value that came over a link.
"""

from __future__ import annotations

from typing import Any


class Choices(list):
    """A menu that shows its entries and takes every value."""

    def __contains__(self, value: object) -> bool:
        return True


def lenient(inputs: Any) -> Any:
    """Return INPUT_TYPES whose menus take every value."""
    if not isinstance(inputs, dict):
        return inputs
    return {group: _group(part) if group in ("required", "optional") else part for group, part in inputs.items()}


def _group(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    made = type(part)()
    made.update({name: _input(declared) for name, declared in part.items()})
    return made


def _input(declared: Any) -> Any:
    if not isinstance(declared, tuple) or not declared:
        return declared
    kind, *rest = declared
    if type(kind) is list:
        return (Choices(kind), *rest)
    if rest and isinstance(rest[0], dict) and type(rest[0].get("options")) is list:
        return (kind, {**rest[0], "options": Choices(rest[0]["options"])}, *rest[1:])
    return declared
