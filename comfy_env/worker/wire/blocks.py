"""Where the bytes of arrays travel: the one place that decides, and the memory they are received into."""

from __future__ import annotations

import mmap

IN_FRAME = 16 * 1024
"""Buffers smaller than this are copied into the payload: a part of their own would cost more."""

MOST = 16_000
"""More buffers than this do not leave with one frame."""

SHARED = 64 * 1024
"""Buffers of at least this size lie in shared memory where the lane has an arena; smaller ones follow their frame."""

MAPPED = 256 * 1024


def rides_in_frame(size: int, others: int = 0) -> bool:
    """Tell whether a buffer of this many bytes is part of the payload, as the last of so many others are in any case."""
    return size < IN_FRAME or others >= MOST


def allocate(size: int) -> memoryview:
    """Return writable memory of exactly this size that its views keep alive.

    Large blocks are mapped: the pages are touched once, by the receiving call, and go back to the system when the last view ends.
    """
    if size < MAPPED:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size))
