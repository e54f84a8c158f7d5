"""Finds the attribute path of a refused object. Runs only after a refusal."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MOST = 200_000   # objects looked at before the search is given up


def path_among(roots: Mapping[str, Any], culprit: Any) -> str:
    """Return where the culprit is, starting with a root's name, such as ``value.opts[3].fn``; "a value" if it is not found."""
    seen = {id(roots)}
    level = [(root, name) for name, root in roots.items()]
    while level and len(seen) < _MOST:
        below = []
        for obj, path in level:
            if obj is culprit:
                return path
            for child, step in _children(obj):
                if id(child) not in seen:
                    seen.add(id(child))
                    below.append((child, path + step))
        level = below
    return "a value"


def _children(obj: Any) -> Iterator[tuple[Any, str]]:
    for kind, children in _KINDS:
        if isinstance(obj, kind):
            return children(obj)
    return _attributes(obj)


def _of_dict(obj: Any) -> Iterator[tuple[Any, str]]:
    for key, value in list(obj.items()):
        yield value, f"[{_short(key)}]"
        yield key, f".key {_short(key)}"


def _of_sequence(obj: Any) -> Iterator[tuple[Any, str]]:
    names = getattr(obj, "_fields", None)
    for i, item in enumerate(obj):
        yield item, f"[{i}]" if names is None else f".{names[i]}"


def _of_set(obj: Any) -> Iterator[tuple[Any, str]]:
    return ((item, ".member") for item in obj)


_KINDS: tuple[tuple[Any, Callable[[Any], Iterator[tuple[Any, str]]]], ...] = (
    (dict, _of_dict), ((list, tuple, deque), _of_sequence), ((set, frozenset), _of_set),
)


def _attributes(obj: Any) -> Iterator[tuple[Any, str]]:
    if type(obj).__name__ == "ndarray" and getattr(obj, "dtype", None) == "O":
        yield from ((item, f".flat[{i}]") for i, item in enumerate(itertools.islice(obj.flat, _MOST)))   # it may show one item for ever
    elif hasattr(obj, "isalignedstruct"):
        yield from _of_dtype(obj)
    elif hasattr(obj, "__dict__") and not isinstance(obj, type):
        yield from ((value, f".{key}") for key, value in list(vars(obj).items()))
    if hasattr(getattr(obj, "dtype", None), "isalignedstruct"):
        yield obj.dtype, ".dtype"
    for name in getattr(type(obj), "__dataclass_fields__", ()):
        if hasattr(obj, name):
            yield getattr(obj, name), f".{name}"


def _of_dtype(dtype: Any) -> Iterator[tuple[Any, str]]:
    """Return what users may put into a numpy type: metadata and titles, also of its parts."""
    yield from ((item, f".metadata{step}") for item, step in _of_dict(dtype.metadata or {}))
    for name in dtype.names or ():
        part, _, *title = dtype.fields[name]
        yield from ((item, f"[{name!r}].title") for item in title)
        yield part, f"[{name!r}]"
    if dtype.subdtype is not None:
        yield dtype.subdtype[0], ".base"


def _short(key: Any) -> str:
    text = repr(key) if isinstance(key, (str, bytes, int, float, bool, type(None))) else type(key).__name__
    return text if len(text) <= 40 else text[:37] + "..."
