"""The fixed header of a frame, and the limits that are checked before anything is allocated.

A frame on the wire::

    head (32 bytes)   magic, version, kind, flags, generation, request, payload length, buffer count, CRC-32
    table             one 64-bit length per buffer; with flag PLACED one `Placed` per buffer, segment 0 for one that follows
    payload           at most 64 MiB; a larger one travels as the first buffer (flag PAYLOAD_IN_BUFFER)
    buffers           raw bytes, but for those that lie in shared memory

The checksum covers head, table and payload, so that no length is believed before it was checked. Buffers are not
summed: they hold array content only, which no length or name depends on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union
from zlib import crc32

from .faults import FrameBroken

MAGIC = b"CEnv"
VERSION = 1
HEAD = struct.Struct("<4sBBHIQIII")
_SUMMED = struct.Struct("<4sBBHIQII")   # all of it but the checksum

PAYLOAD_LIMIT = 64 * 1024 * 1024
BUFFER_LIMIT = 1 << 40
COUNT_LIMIT = 16_384
PAYLOAD_IN_BUFFER = 1
PLACED = 2
_KNOWN_FLAGS = PAYLOAD_IN_BUFFER | PLACED
_LENGTH = struct.Struct("<Q")
_PLACE = struct.Struct("<QQQQI4x")
ON_DEVICE = (1 << 32) - 1
"""The segment of a buffer that is memory of a device: the payload tells where that is."""

Bytes = Union[bytes, bytearray, memoryview]


class Placed(NamedTuple):
    """Where in shared memory a buffer lies.

    ``lease`` is what its receiver gives back when nobody looks at it any more, ``block`` where the memory starts that
    is not mixed with anybody else's.
    """

    size: int
    offset: int
    lease: int
    block: int
    segment: int


class Frame(NamedTuple):
    """One message. ``kind`` is a plain number: an unknown one is the receiver's to refuse."""

    kind: int
    request: int = 0
    generation: int = 0
    payload: Bytes = b""
    buffers: Sequence[memoryview] = ()


class Head(NamedTuple):
    """A header that passed its checks."""

    kind: int
    flags: int
    generation: int
    request: int
    size: int     # of the payload
    buffers: int
    crc: int
    start: int    # checksum of the header itself

    @property
    def rest(self) -> int:
        """How many bytes of table and payload follow."""
        return self.size + self.buffers * (_PLACE if self.flags & PLACED else _LENGTH).size


def pack(frame: Frame, places: Sequence[Optional[Placed]] = ()) -> tuple[bytes, Bytes, Sequence[memoryview]]:
    """Return head with table, payload and buffers of a frame, ready to be written one after the other.

    ``places``: for each buffer where it lies, None for one that is written.
    """
    kind, request, generation, payload, buffers = frame
    flags = 0
    if len(payload) > PAYLOAD_LIMIT:
        flags, buffers, payload = PAYLOAD_IN_BUFFER, [memoryview(payload), *buffers], b""
        places = (None, *places) if places else ()
    if any(places):
        flags |= PLACED
    count = len(buffers)
    head = _SUMMED.pack(MAGIC, VERSION, kind, flags, generation, request, len(payload), count)
    table, buffers = _table(buffers, places) if flags & PLACED else (struct.pack(f"<{count}Q", *[b.nbytes for b in buffers]), buffers)
    crc = crc32(payload, crc32(head + table))
    return head + crc.to_bytes(4, "little") + table, payload, buffers


def joined(frame: Frame) -> bytes:
    """Return all of a small frame without buffers."""
    kind, request, generation, payload, _ = frame
    head = _SUMMED.pack(MAGIC, VERSION, kind, 0, generation, request, len(payload), 0)
    return b"".join((head, crc32(payload, crc32(head)).to_bytes(4, "little"), payload))


def _table(buffers: Sequence[memoryview], places: Sequence[Optional[Placed]]) -> tuple[bytes, list[memoryview]]:
    """Return the table of buffers of which some are placed, and those that are not."""
    pairs = list(zip(buffers, places))  # noqa: B905 - not in Python 3.9
    table = b"".join(_PLACE.pack(*(place or (buffer.nbytes, 0, 0, 0, 0))) for buffer, place in pairs)
    return table, [buffer for buffer, place in pairs if place is None]


def whole(data: memoryview, start: int, end: int, payload_limit: int) -> Optional[tuple[Frame, list[Placed], int]]:
    """Return the frame at a place of the data, where its buffers lie and where it ends, if it is small and all there."""
    magic, version, kind, flags, generation, request, size, count, crc = HEAD.unpack_from(data, start)
    body = start + HEAD.size
    table = count * _PLACE.size
    stop = body + table + size
    if magic != MAGIC or version != VERSION or flags != (PLACED if count else 0) or size > payload_limit or stop > end:
        return None
    rest = bytes(data[body:stop])
    if crc32(rest, crc32(data[start:start + _SUMMED.size])) != crc:
        raise FrameBroken("a frame's checksum is wrong")
    if not count:
        return Frame(kind, request, generation, rest), [], stop
    places = [Placed(*entry) for entry in _PLACE.iter_unpack(rest[:table])]
    return (Frame(kind, request, generation, rest[table:]), places, stop) if all(place.segment for place in places) else None


def unpack(data: Bytes, payload_limit: int = PAYLOAD_LIMIT) -> Head:
    """Check the header that data starts with and return it; raises FrameBroken on what a sound sender cannot have written."""
    magic, version, kind, flags, generation, request, size, count, crc = HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or flags or count or size > payload_limit:
        _examine(magic, version, flags, size, count, payload_limit)
    return Head(kind, flags, generation, request, size, count, crc, crc32(data[:_SUMMED.size]))


def _examine(magic: bytes, version: int, flags: int, size: int, count: int, limit: int) -> None:
    """Refuse an unusual header, or let it pass."""
    if magic != MAGIC:
        raise FrameBroken(f"a frame starts with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise FrameBroken(f"a frame of version {version} where version {VERSION} is spoken")
    if flags & ~_KNOWN_FLAGS:
        raise FrameBroken(f"a frame with unknown flags {flags:#x}")
    if size > limit:
        raise FrameBroken(f"a frame claims a payload of {size} bytes; the limit is {limit}")
    most = COUNT_LIMIT if limit >= PAYLOAD_LIMIT else 0
    if count > most:
        raise FrameBroken(f"a frame claims {count} buffers; the limit is {most}")
    if flags & PAYLOAD_IN_BUFFER and not count:
        raise FrameBroken("a frame claims that its payload is a buffer and has none")


def check(head: Head, body: Bytes) -> tuple[Sequence[Placed], Bytes]:
    """Return where the buffers are and the payload of a body (table and payload) whose checksum is right."""
    if crc32(body, head.start) != head.crc:
        raise FrameBroken("a frame's checksum is wrong")
    end = head.rest - head.size
    if not end:
        return (), body
    if head.flags & PLACED:
        places = [Placed(*entry) for entry in _PLACE.iter_unpack(body[:end])]
    else:
        places = [Placed(size, 0, 0, 0, 0) for size, in _LENGTH.iter_unpack(body[:end])]
    longest = max(place.size for place in places)
    if longest > BUFFER_LIMIT:
        raise FrameBroken(f"a frame claims a buffer of {longest} bytes; the limit is {BUFFER_LIMIT}")
    return places, body[end:]


def finish(head: Head, payload: Bytes, buffers: list[memoryview]) -> Frame:
    """Return the frame of a header, a checked payload and its filled buffers."""
    if head.flags & PAYLOAD_IN_BUFFER:
        payload, buffers = buffers[0], buffers[1:]
    return Frame(head.kind, head.request, head.generation, payload, buffers)
