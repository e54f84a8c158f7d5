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


def grid_of(shape: Sequence[int], strides: Sequence[int]) -> Optional[Grid]:
    """Return the grid of a view that shows more than its grid has; None for one that shows every place once, or nothing.

    The strides, in whatever unit, are not negative. The grid begins where the view does and ends where it ends.
    """
    axes = list(zip(shape, strides))  # noqa: B905 - not in Python 3.9
    levels: list[tuple[int, int]] = []   # a step, and how many of them the grid reaches; each step is beyond all before it
    for step, size in sorted((step, size) for size, step in axes if size > 1 and step):
        level = step, size - 1
        while levels and level[0] <= sum(one * reach for one, reach in levels):
            level = _merged(levels.pop(), level)
        levels.append(level)
    if math.prod(reach + 1 for _, reach in levels) >= math.prod(shape):
        return None
    levels.reverse()
    sizes = tuple(reach + 1 for _, reach in levels)
    return Grid(sizes, tuple(step for step, _ in levels), tuple(_stride(levels, size, step) for size, step in axes))


def _merged(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    step = math.gcd(one[0], other[0])
    return step, (one[0] * one[1] + other[0] * other[1]) // step


def _stride(levels: list[tuple[int, int]], size: int, step: int) -> int:
    """Return what an axis of the view steps in a dense copy of the grid; one of a single element keeps its stride."""
    if size < 2 or not step:
        return step
    inner = next(i for i, (one, _) in enumerate(levels) if one <= step)
    return step // levels[inner][0] * math.prod(reach + 1 for _, reach in levels[inner + 1:])


def reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return how far a view's elements lie below and above its first one; of a view that is not empty."""
    ends = [(size - 1) * step for size, step in zip(shape, strides)]  # noqa: B905 - not in Python 3.9
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)
