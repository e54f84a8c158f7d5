"""Lived time: a clock that stands still while nobody could run.

A limit must not be exceeded because a laptop slept or the whole process was stopped. Whoever counts marks each slice it
lived through, once in a slice at least; a mark that comes later than two slices counts as one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from comfy_env.process.patience import SLICE, lived


class LivedClock:
    """Monotonic seconds of lived time; `mark` is called by the watcher at every wake-up, `now` by anybody."""

    def __init__(self, real: Callable[[], float] = time.monotonic, slice: float = SLICE) -> None:
        self._real = real
        self._slice = slice
        self._lock = threading.Lock()
        self._marked = self._lived = real()
        self._mark = (self._marked, self._lived)   # replaced whole: `now` is asked at every event and takes no lock
        self._attended = False

    def now(self) -> float:
        marked, lived = self._mark
        passed = self._real() - marked
        return lived + (self._slice if self._attended and passed > self._slice else passed)

    def mark(self) -> None:
        """Count the time since the last mark as lived, or as one slice if it was longer than two."""
        with self._lock:
            real = self._real()
            passed = real - self._marked
            self._lived += lived(passed, self._slice) if self._attended else passed
            self._marked = real
            self._mark = (real, self._lived)

    def attend(self, yes: bool) -> None:
        """Tell whether somebody marks; without a watcher the clock is the real one."""
        self.mark()
        self._attended = yes
