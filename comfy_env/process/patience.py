"""A wait's limit, counted in slices that the waiting thread really lived through: who slept for hours has exceeded none."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE = 1.0
"""Seconds of one wait at most, and so what a whole night counts."""


class Patience:
    """The lived seconds that one thread still waits. It looks at `left` before each wait and waits `slice` at most.

    A slice is at most a quarter of the whole, so that a wake-up which comes too late leaves some to wait for.
    """

    def __init__(self, seconds: float, real: Callable[[], float] | None = None) -> None:
        self._real = real or time.monotonic
        self._slice = min(SLICE, max(0.0, seconds) / 4)
        self._looked = self._real()
        self._left = seconds

    def left(self) -> float:
        """Count what was lived since the last look; return what is left, at least 0."""
        real = self._real()
        self._left -= lived(real - self._looked, self._slice)
        self._looked = real
        return max(0.0, self._left)

    def slice(self) -> float:
        """Return how long to wait now, 0 when the patience is over."""
        return min(self.left(), self._slice)

    def wait(self, wait: Callable[[float], object]) -> bool:
        """Wait slice by slice, with a function that waits for so many seconds, until it says yes; False when the patience is over."""
        while not wait(seconds := self.slice()):
            if not seconds:
                return False
        return True


def lived(passed: float, slice: float) -> float:
    """Return what counts of the time since the last look: one slice where it was more than two."""
    return slice if passed > 2 * slice else passed
