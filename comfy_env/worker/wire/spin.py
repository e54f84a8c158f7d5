"""Looks for an answer again and again for a moment before a thread sleeps.

Putting a thread to sleep and waking it across processors costs several times what a small call does. A look that was
in vain too often is given up until an answer comes quickly again, and there is none where nobody else could run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

LONGEST = 200e-6    # s of one spin
SOON = 700e-6       # s within which an answer that nobody spun for came quickly: two wake-ups lie in it
MISSES = 4          # spins in vain, after which there are none for now

_yield: Any = getattr(os, "sched_yield", lambda: None)


class Spin:
    """One waiting thread's habit. ``spun`` counts spins, ``met`` those that an answer came in."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.spun = self.met = 0
        self._left = MISSES if _processors() > 1 else 0
        self._can = self._left > 0

    def wait(self, poll: Any, timeout: Any) -> Any:
        """Return what ``poll.poll(timeout)`` would."""
        if not self._can:
            return poll.poll(timeout)
        begun = self._clock()
        ready = self._spin(poll, begun + LONGEST) if self._left else ()
        if not ready:
            ready = poll.poll(timeout)
            if self._clock() - begun < SOON:
                self._left = MISSES
        return ready

    def _spin(self, poll: Any, until: float) -> Any:
        self.spun += 1
        while True:
            ready = poll.poll(0)
            if ready:
                self.met += 1
                self._left = MISSES
                return ready
            if self._clock() > until:
                self._left -= 1
                return ready
            _yield()


def _processors() -> int:
    """Return how many processors this process may run on."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
