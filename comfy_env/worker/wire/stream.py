"""Frames over a stream socket: written whole under a mutex, read resumably into the place where they stay."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import Optional

from . import blocks
from .faults import FrameBroken, LaneEnd
from .frames import HEAD, PAYLOAD_LIMIT, Bytes, Frame, Head, check, finish, pack, unpack, whole

_BUFFER = 64 * 1024
_JOIN = 16 * 1024     # head and payload up to this size are written by one plain send
_PARTS = 512          # parts given to one sendmsg; systems allow at least 1,024


class _Arriving:
    """A frame of which not everything is here yet. ``targets`` are filled in order; full ones are taken off."""

    __slots__ = ("head", "body", "payload", "blocks", "targets")

    def __init__(self, head: Head, size: int) -> None:
        self.head = head
        self.body = memoryview(bytearray(size))
        self.payload: Optional[Bytes] = None
        self.blocks: list[memoryview] = []
        self.targets = [self.body] if size else []

    def expect_blocks(self) -> None:
        """Check the body and make room for the buffers it announces."""
        lengths, self.payload = check(self.head, self.body)
        try:
            self.blocks = [blocks.allocate(n) for n in lengths]
        except (MemoryError, OSError, OverflowError, ValueError) as error:
            raise FrameBroken(f"no memory for the {sum(lengths)} bytes that a frame brings") from error
        self.targets = [b for b in self.blocks if b.nbytes]


class FrameStream:
    """One end of a lane on a blocking socket. Any thread may send; one thread at a time may receive."""

    def __init__(self, sock: socket.socket, payload_limit: int = PAYLOAD_LIMIT) -> None:
        self.sock = sock
        self.payload_limit = payload_limit
        self._mutex = threading.Lock()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._start = 0
        self._end = 0
        self._arriving: Optional[_Arriving] = None

    # ---- writing

    def send(self, frame: Frame, deadline: Optional[float] = None) -> None:
        """Write a frame whole; raises LaneEnd when the other end is gone. ``deadline`` is for ends that wait with one."""
        head, payload, buffers = pack(frame)
        with self._mutex:
            if buffers or len(payload) > _JOIN:
                self._write([head, payload, *buffers], deadline)
                return
            data = head + payload
            sent = self._send_some([data], deadline)
            if sent < len(data):
                self._write([memoryview(data)[sent:]], deadline, begun=True)

    def _write(self, parts: Sequence[Bytes], deadline: Optional[float], begun: bool = False) -> None:
        queue = [memoryview(p).cast("B") for p in parts if len(p)]
        try:
            while queue:
                sent = self._send_some(queue[:_PARTS], deadline)
                begun = True
                _drop(queue, sent)
        except BaseException:
            if begun:  # half a frame is out: nothing may follow it
                self.close()
            raise

    def _send_some(self, parts: Sequence[Bytes], deadline: Optional[float]) -> int:
        """Write some of the parts, waiting until that is possible, and return how many bytes went out."""
        try:
            return self.sock.sendmsg(parts)
        except OSError as error:
            raise LaneEnd(f"the other end is gone ({error})") from error

    # ---- reading

    def receive(self) -> Frame:
        """Return the next frame. Interrupted by an exception it goes on where it was at the next call."""
        while True:
            frame = self._step()
            if frame is not None:
                return frame
            self._fill()

    def _step(self) -> Optional[Frame]:
        """Return a frame if what was read so far completes one."""
        if self._arriving is None:
            start = self._start + HEAD.size
            if self._end < start:
                return None
            frame = whole(self._buffer, self._start, self._end, self.payload_limit)
            if frame is not None:
                self._start = start + len(frame.payload)
                return frame
            head = unpack(self._buffer[self._start:start], self.payload_limit)
            self._start = start
            self._arriving = _Arriving(head, head.size + 8 * head.buffers)
        return self._go_on(self._arriving)

    def _go_on(self, arriving: _Arriving) -> Optional[Frame]:
        while True:
            self._pour(arriving.targets)
            if arriving.targets:
                return None
            if arriving.payload is not None:
                self._arriving = None
                return finish(arriving.head, arriving.payload, arriving.blocks)
            arriving.expect_blocks()

    def _pour(self, targets: list[memoryview]) -> None:
        """Move bytes that were read ahead into the targets."""
        while targets and self._start < self._end:
            size = min(len(targets[0]), self._end - self._start)
            targets[0][:size] = self._buffer[self._start:self._start + size]
            self._start += size
            _drop(targets, size)

    def _fill(self) -> None:
        """Read once: into the frame that is arriving if there is one, else ahead."""
        if self._arriving is not None:
            _drop(self._arriving.targets, self._read(self._arriving.targets[0]))
            return
        left = self._end - self._start
        if not left:
            self._start = self._end = 0   # before the read: it may be interrupted
            self._end = self._read(self._buffer)
            return
        if self._start:   # less than a head is left
            self._buffer[:left] = bytes(self._buffer[self._start:self._end])
            self._start, self._end = 0, left
        self._end += self._read(self._buffer[left:])

    def _read(self, target: memoryview) -> int:
        try:
            size = self.sock.recv_into(target)
        except OSError as error:
            raise LaneEnd(f"the other end is gone ({error})") from error
        if not size:
            raise LaneEnd("the other end closed the lane")
        return size

    def close(self) -> None:
        """Close this end; a thread that waits in it wakes up."""
        with contextlib.suppress(OSError):  # the other end closed first
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def _drop(queue: list[memoryview], sent: int) -> None:
    """Take the first ``sent`` bytes off the queue."""
    while queue and sent >= len(queue[0]):
        sent -= len(queue.pop(0))
    if sent:
        queue[0] = queue[0][sent:]
