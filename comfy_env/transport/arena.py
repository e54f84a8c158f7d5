"""The host's end of the arenas: one per worker and direction, and what of them this process looks at.

A value that lies in one worker's arena is passed on to another by naming the place: its descriptor goes along once and
no byte of it is touched. The host keeps the view it passed on until the other worker gives it back, so a block returns
to its owner when the last view here has ended and no worker looks at it any more.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from typing import Any

from comfy_env.worker.wire import segments
from comfy_env.worker.wire.inbox import Inbox, Mapped
from comfy_env.worker.wire.outbox import Outbox
from comfy_env.worker.wire.sharing import Sharing


class Mappings:
    """Where in this process's memory the segments of workers lie. Looked into without a lock: what is there is replaced whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: tuple[list[int], list[weakref.ref[Mapped]]] = ([], [])

    def add(self, segment: Mapped) -> None:
        """Know a segment until it is no more."""
        with self._lock:
            known = [(one.base, ref) for ref in self._spans[1] if (one := ref()) is not None]
            known.append((segment.base, weakref.ref(segment)))
            known.sort(key=lambda pair: pair[0])
            self._spans = ([base for base, _ in known], [ref for _, ref in known])

    def find(self, address: int, size: int) -> tuple[Mapped, int, int] | None:
        """Return the segment that holds this memory, the offset in it, and where the lease starts that covers it."""
        bases, refs = self._spans
        index = bisect.bisect_right(bases, address) - 1
        segment = refs[index]() if index >= 0 else None
        if segment is None or address + size > segment.base + segment.size:
            return None
        offset = address - segment.base
        start = _lease_around(segment, offset, size)
        return None if start is None else (segment, offset, start)


def _lease_around(segment: Mapped, offset: int, size: int) -> int | None:
    """Return where the lease starts that covers a range: at a multiple of a power of two not smaller than the range."""
    unit = 1 << (max(size, segments.SMALLEST) - 1).bit_length()
    while True:
        start = offset - offset % unit
        if start + segment.leases.get(start, 0) >= offset + size:
            return start
        if not start:
            return None
        unit *= 2


mappings = Mappings()


def open_arena(label: str) -> Sharing:
    """Return the host's half of a worker's arena. ``label`` begins the names of segments where nameless memory is unknown."""
    return Sharing(Outbox(label, find=mappings.find), Inbox(private=False, wary=True, mapped=mappings.add))


def traffic(sharing: Sharing | None) -> dict[str, Any]:
    """Return what went through an arena towards its worker, in bytes, and how much of either end the other looks at."""
    if sharing is None:
        return {"copied": 0, "passed": 0, "spilled": 0, "lent": 0, "live": 0}
    outbox = sharing.outbox
    return {"copied": outbox.copied, "passed": outbox.passed, "spilled": outbox.spilled, "lent": outbox.lent, "live": sharing.inbox.live}
