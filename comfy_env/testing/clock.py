"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading


class MovableClock:
    """Satisfies `ports.Clock`; thread-safe. Time only goes forward."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> float:
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> float:
        """Move the clock and return the new time."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds:g} s")
        with self._lock:
            self._now += seconds
            return self._now
