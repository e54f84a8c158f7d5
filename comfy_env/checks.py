"""Checks of the values that people make by hand; a `PlanError` tells what is wrong by the class and the field."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from comfy_env.errors import PlanError


def wrong(value: Any, name: str, given: Any, wanted: str) -> PlanError:
    """Return the error of a field that has another value than is wanted."""
    return PlanError(f"{type(value).__name__}({name}={given!r}): {wanted} is wanted")


def be_kind(value: Any, kind: Any, wanted: str, *names: str) -> None:
    """Raise PlanError unless each of these fields is of a kind."""
    for name in names:
        given = getattr(value, name)
        if not isinstance(given, kind):
            raise wrong(value, name, given, wanted)


def be_paths(value: Any, *names: str) -> None:
    """Make a Path of each of these fields, None aside."""
    for name in names:
        given = getattr(value, name)
        if given is not None:
            object.__setattr__(value, name, path(value, name, given))


def path(value: Any, name: str, given: Any) -> Path:
    """Return what was given for a field as a Path."""
    text = path_text(given)
    if text is None:
        raise wrong(value, name, given, "a path")
    return given if isinstance(given, Path) else Path(text)


def path_text(given: Any) -> str | None:
    """Return the text of a path, None for what is none."""
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    return text if isinstance(text, str) and text else None


def be_several(value: Any, kind: Any, wanted: str, *names: str) -> None:
    """Make a tuple of each of these fields, whose entries must be of a kind."""
    for name in names:
        entries = _several(value, name, getattr(value, name), wanted)
        odd = [entry for entry in entries if not isinstance(entry, kind)]
        if odd:
            raise PlanError(f"{type(value).__name__}({name}=...): {odd[0]!r} is among its entries; {wanted} are wanted")
        object.__setattr__(value, name, entries)


def _several(value: Any, name: str, given: Any, wanted: str) -> tuple[Any, ...]:
    """Return the entries; one text would be taken for as many entries as it has letters."""
    if isinstance(given, str | bytes | Path):
        raise PlanError(f"{name} must be several entries, not the one text {str(given)!r}", hint=f"write {name}=({str(given)!r},)")
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise wrong(value, name, given, f"a tuple of {wanted}")
    return tuple(given)


def be_pairs(value: Any, name: str, kind: Any, wanted: str) -> None:
    """Make sorted pairs of a dict by name; what is wrong is told without its values, which may be secrets."""
    given = getattr(value, name)
    try:
        entries = dict(given)
    except (TypeError, ValueError):
        raise _odd_pair(value, "...", name, wanted, type(given).__name__) from None
    for key, one in entries.items():
        if not isinstance(key, str) or not isinstance(one, kind):
            raise _odd_pair(value, f"{{{key!r}: ...}}", name, wanted, f"{type(key).__name__}: {type(one).__name__}")
    object.__setattr__(value, name, tuple(sorted(entries.items())))


def _odd_pair(value: Any, shown: str, name: str, wanted: str, found: str) -> PlanError:
    return PlanError(f"{type(value).__name__}({name}={shown}): a dict of {wanted}s by name is wanted, not {found}")
