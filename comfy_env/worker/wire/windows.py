"""Views that show memory more than once: what has to travel of it, and how the view is laid over that again.

A sliding window over n elements shows n times its length, a broadcast axis one element as often as it likes. Such a view
is sent as the grid of places that it looks at, and its strides in that grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Optional


class Grid(NamedTuple):
    """Places in memory that fill a box of ``sizes``, ``steps`` apart, the largest first.

    ``strides`` are the view's own in a dense copy of it.
    """

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]


class _Level(NamedTuple):
    """Places ``step`` apart, ``reach`` of them after the first, that these axes of the view look at."""

    step: int
    reach: int
    axes: tuple[int, ...]


def grid_of(shape: Sequence[int], strides: Sequence[int]) -> Optional[Grid]:
    """Return the grid of a view that shows more than its grid has; None for one that shows every place once, or nothing.

    The strides, in whatever unit, are not negative. The grid begins where the view does and ends where it ends.
    """
    levels: list[_Level] = []   # each step is beyond all that those before reach
    for step, size, axis in sorted((strides[i], size, i) for i, size in enumerate(shape) if size > 1 and strides[i]):
        level = _Level(step, size - 1, (axis,))
        while levels and level.step <= sum(one.step * one.reach for one in levels):
            level = _merged(levels.pop(), level)
        levels.append(level)
    grid = [one for level in reversed(levels) for one in _cheapest(level, shape, strides)]
    if math.prod(one.reach + 1 for one in grid) >= math.prod(shape):
        return None
    return Grid(tuple(one.reach + 1 for one in grid), tuple(one.step for one in grid), _strides_in(grid, shape, strides))


def _merged(one: _Level, other: _Level) -> _Level:
    step = math.gcd(one.step, other.step)
    return _Level(step, (one.step * one.reach + other.step * other.reach) // step, one.axes + other.axes)


def _cheapest(level: _Level, shape: Sequence[int], strides: Sequence[int]) -> list[_Level]:
    """Return the level, or one for each of its axes where that is less: steps with little in common have most places between them."""
    if math.prod(shape[axis] for axis in level.axes) > level.reach + 1:
        return [level]
    return sorted((_Level(strides[axis], shape[axis] - 1, (axis,)) for axis in level.axes), reverse=True)


def _strides_in(grid: list[_Level], shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return what each axis of the view steps in a dense copy of the grid; one of a single element keeps its stride."""
    found = [step if size < 2 else 0 for size, step in zip(shape, strides)]  # noqa: B905 - not in Python 3.9
    inner = 1
    for level in reversed(grid):
        for axis in level.axes:
            found[axis] = strides[axis] // level.step * inner
        inner *= level.reach + 1
    return tuple(found)


def reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return how far a view's elements lie below and above its first one; of a view that is not empty."""
    ends = [(size - 1) * step for size, step in zip(shape, strides)]  # noqa: B905 - not in Python 3.9
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)
