"""Waiting on descriptors of any number; `select` stops at 1024."""

from __future__ import annotations

import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int | None], seconds: float) -> bool:
    """Wait until one of the descriptors is readable or ended; False when the time is up. None entries count as silent."""
    poll = select.poll()
    for fd in descriptors:
        if fd is not None and fd >= 0:
            poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
