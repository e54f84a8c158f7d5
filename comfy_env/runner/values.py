"""Values of a workflow file in words, and how deep they may be nested."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

DEEPEST = 100
"""Levels of lists and objects in one node. No node wants more, and Python's own recursion ends somewhere above."""

_JSON = (str, int, float, list, tuple, Mapping)
_LIMITED = reprlib.Repr()
_LIMITED.maxstring = _LIMITED.maxother = 80
_LIMITED.maxlist = _LIMITED.maxdict = _LIMITED.maxtuple = 4
_LIMITED.maxlevel = 3


def shown(value: Any) -> str:
    """Return a value for a message, short whatever it is; what is no value of JSON by its type."""
    if value is not None and not isinstance(value, _JSON):
        return f"a value of type {type(value).__qualname__}"
    try:
        return _LIMITED.repr(value)
    except ValueError:   # an integer of more digits than Python puts into words
        return "a number of thousands of digits"


def too_deep(value: Any) -> bool:
    """Tell whether a value is nested deeper than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()
