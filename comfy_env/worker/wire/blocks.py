"""Where the bytes of arrays travel: the one place that decides, and the memory they are received into."""

from __future__ import annotations

import mmap

IN_FRAME = 16 * 1024
"""Buffers smaller than this are copied into the payload: a block of their own would cost more."""

MAPPED = 256 * 1024


def rides_in_frame(size: int) -> bool:
    """Tell whether a buffer of this many bytes is part of the payload."""
    return size < IN_FRAME


def allocate(size: int) -> memoryview:
    """Return writable memory of exactly this size that its views keep alive.

    Large blocks are mapped: the pages are touched once, by the receiving call, and go back to the system when the last view ends.
    """
    if size < MAPPED:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size))
