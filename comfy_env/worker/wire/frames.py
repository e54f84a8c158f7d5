"""The fixed header of a frame, and the limits that are checked before anything is allocated.

A frame on the wire::

    head (32 bytes)   magic, version, kind, flags, generation, request, payload length, buffer count, CRC-32
    table             one 64-bit length per buffer
    payload           at most 64 MiB; a larger one travels as the first buffer (flag PAYLOAD_IN_BUFFER)
    buffers           raw bytes

The checksum covers head, table and payload, so that no length is believed before it was checked. Buffers are not
summed: they hold array content only, which no length or name depends on.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

from .faults import FrameBroken

MAGIC = b"CEnv"
VERSION = 1
HEAD = struct.Struct("<4sBBHIQIII")
_SUMMED = struct.Struct("<4sBBHIQII")   # all of it but the checksum

PAYLOAD_LIMIT = 64 * 1024 * 1024
BUFFER_LIMIT = 1 << 40
COUNT_LIMIT = 16_384
PAYLOAD_IN_BUFFER = 1
_KNOWN_FLAGS = PAYLOAD_IN_BUFFER

Bytes = Union[bytes, bytearray, memoryview]


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


def pack(frame: Frame) -> tuple[bytes, Bytes, Sequence[memoryview]]:
    """Return head with table, payload and buffers of a frame, ready to be written one after the other."""
    kind, request, generation, payload, buffers = frame
    flags = 0
    if len(payload) > PAYLOAD_LIMIT:
        flags, buffers, payload = PAYLOAD_IN_BUFFER, [memoryview(payload), *buffers], b""
    count = len(buffers)
    head = _SUMMED.pack(MAGIC, VERSION, kind, flags, generation, request, len(payload), count)
    table = struct.pack(f"<{count}Q", *[b.nbytes for b in buffers]) if count else b""
    crc = zlib.crc32(payload, zlib.crc32(head + table))
    return head + crc.to_bytes(4, "little") + table, payload, buffers


def whole(data: memoryview, start: int, end: int, payload_limit: int) -> Optional[Frame]:
    """Return the frame at a place of the data if it is the usual kind: small, all there, without buffers."""
    magic, version, kind, flags, generation, request, size, count, crc = HEAD.unpack_from(data, start)
    body = start + HEAD.size
    if magic != MAGIC or version != VERSION or flags or count or size > payload_limit or body + size > end:
        return None
    payload = bytes(data[body:body + size])
    if zlib.crc32(payload, zlib.crc32(data[start:start + _SUMMED.size])) != crc:
        raise FrameBroken("a frame's checksum is wrong")
    return Frame(kind, request, generation, payload)


def unpack(data: Bytes, payload_limit: int = PAYLOAD_LIMIT) -> Head:
    """Check the header that data starts with and return it; raises FrameBroken on what a sound sender cannot have written."""
    magic, version, kind, flags, generation, request, size, count, crc = HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or flags or count or size > payload_limit:
        _examine(magic, version, flags, size, count, payload_limit)
    return Head(kind, flags, generation, request, size, count, crc, zlib.crc32(data[:_SUMMED.size]))


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


def check(head: Head, body: Bytes) -> tuple[tuple[int, ...], Bytes]:
    """Return the buffer lengths and the payload of a body (table and payload) whose checksum is right."""
    if zlib.crc32(body, head.start) != head.crc:
        raise FrameBroken("a frame's checksum is wrong")
    if not head.buffers:
        return (), body
    lengths = struct.unpack_from(f"<{head.buffers}Q", body)
    if max(lengths) > BUFFER_LIMIT:
        raise FrameBroken(f"a frame claims a buffer of {max(lengths)} bytes; the limit is {BUFFER_LIMIT}")
    return lengths, body[8 * head.buffers:]


def finish(head: Head, payload: Bytes, buffers: list[memoryview]) -> Frame:
    """Return the frame of a header, a checked payload and its filled buffers."""
    if head.flags & PAYLOAD_IN_BUFFER:
        payload, buffers = buffers[0], buffers[1:]
    return Frame(head.kind, head.request, head.generation, payload, buffers)
