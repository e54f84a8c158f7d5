"""Until when something is waited for on a lane: a time of the clock, or slices that the waiting thread really lives through."""

from __future__ import annotations

import time
from typing import Any, Protocol

from comfy_env.values import Lane


class Slices(Protocol):
    """A limit that stands still while nobody could run (`process.patience.Patience`)."""

    def left(self) -> float: ...    # seconds, 0 when it is over
    def slice(self) -> float: ...   # how long to wait now, 0 when it is over


Limit = float | Slices | None
"""A time of `time.monotonic()`, or slices; None is no limit."""


def by_clock(seconds: float) -> Limit:
    """Return the limit that ends so many seconds from now, by the clock: what a session knows until its pool tells it better."""
    return time.monotonic() + seconds


def wait_now(limit: Limit) -> float | None:
    """Return how long to wait before the limit is looked at again, None for ever."""
    if limit is None:
        return None
    return max(0.0, limit - time.monotonic()) if isinstance(limit, int | float) else limit.slice()


def is_over(limit: Limit) -> bool:
    """Tell whether the limit is reached."""
    if limit is None:
        return False
    return time.monotonic() >= limit if isinstance(limit, int | float) else not limit.left()


def receive(lane: Lane, limit: Limit, also: tuple[int, ...]) -> Any:
    """Return a lane's next frame; TimeoutError at the limit. A lane knows times only, and loses nothing at one."""
    while not isinstance(limit, int | float | None):
        seconds = limit.slice()
        try:
            return lane.receive(time.monotonic() + seconds, also)
        except TimeoutError:
            if not seconds:
                raise
    return lane.receive(limit, also)


def send(lane: Lane, frame: Any, limit: Limit) -> None:
    """Send a frame on a lane, once: its limit is given to one that counts slices itself, and to others as a time."""
    if not isinstance(limit, int | float | None) and not getattr(lane, "counts_slices", False):
        limit = time.monotonic() + limit.left()
    lane.send(frame, limit)  # type: ignore[arg-type]
