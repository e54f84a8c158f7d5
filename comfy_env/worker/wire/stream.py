"""Frames over a stream socket: written whole under a mutex, read resumably into the place where they stay.

Where a lane has an arena, large buffers are placed in it and the arena's own frames are dealt with in here.
"""

from __future__ import annotations

import array
import contextlib
import functools
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Optional

from . import blocks
from .faults import FrameBroken, LaneEnd, NoRoom
from .frames import HEAD, PAYLOAD_LIMIT, Bytes, Frame, Head, Placed, check, finish, joined, pack, unpack, whole
from .headroom import Headroom
from .kinds import Kind
from .outbox import Announcement
from .sharing import Sharing
from .spin import Spin

_BUFFER = 64 * 1024
_JOIN = 16 * 1024     # head and payload up to this size are written by one plain send
_PARTS = 512          # parts given to one sendmsg; systems allow at least 1,024
_BIG = 16 * 1024 * 1024   # buffers that follow their frame are made room for only if there is that much
ASIDE = socket.CMSG_SPACE(4 * 4)   # room for the descriptors that one read brings
CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_OWN_KINDS = (Kind.SEGMENT, Kind.RETURN)


class _Arriving:
    """A frame of which not everything is here yet. ``targets`` are filled in order; full ones are taken off."""

    __slots__ = ("head", "body", "payload", "buffers", "targets")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.body = memoryview(bytearray(head.rest))
        self.payload: Optional[Bytes] = None
        self.buffers: list[Any] = []     # memory to fill, or where in shared memory it is
        self.targets = [self.body] if head.rest else []

    def expect_buffers(self, headroom: Headroom) -> None:
        """Check the body and make room for the buffers it announces."""
        places, self.payload = check(self.head, self.body)
        lengths = [place.size for place in places if not place.segment]
        try:
            if sum(lengths) >= _BIG:
                headroom.take(sum(lengths))
            self.buffers = [place if place.segment else blocks.allocate(place.size) for place in places]
        except (MemoryError, OSError, OverflowError, ValueError, NoRoom) as error:
            raise FrameBroken(f"no memory for the {sum(lengths)} bytes that a frame brings ({error})") from error
        self.targets = [b for b in self.buffers if type(b) is memoryview and b.nbytes]


class FrameStream:
    """One end of a lane on a blocking socket. Any thread may send; one thread at a time may receive.

    ``sharing`` is its arena once both ends have agreed on one.
    """

    def __init__(self, sock: socket.socket, payload_limit: int = PAYLOAD_LIMIT) -> None:
        self.sock = sock
        self.payload_limit = payload_limit
        self.sharing: Optional[Sharing] = None
        self._headroom = Headroom()
        self._mutex = threading.Lock()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._start = 0
        self._end = 0
        self._arriving: Optional[_Arriving] = None
        self._await: Optional[Callable[[], Any]] = None

    def spin(self) -> None:
        """Look for input for a moment before each read, so that a quick answer finds this end awake."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        self._await = functools.partial(Spin().wait, poll, None)

    # ---- writing

    def send(self, frame: Frame, deadline: Optional[float] = None) -> None:
        """Write a frame whole; raises LaneEnd when the other end is gone, NoRoom before anything is written.

        ``deadline`` is for ends that wait with one.
        """
        sharing = self.sharing
        with self._mutex:
            if sharing is not None and (frame.buffers or sharing.news):
                self._share(sharing, frame, deadline)
            elif frame.buffers or len(frame.payload) > _JOIN:
                head, payload, buffers = pack(frame)
                self._write([head, payload, *buffers], deadline)
            else:
                self._put(joined(frame), deadline)

    def _share(self, sharing: Sharing, frame: Frame, deadline: Optional[float]) -> None:
        """Place a frame's large buffers and write what the other end must know, then the frame."""
        places = sharing.place(frame.buffers) if frame.buffers else ()
        back = None
        try:
            if sharing.outbox.announcements:
                self._announce(sharing.outbox.announcements, deadline)
            back = sharing.take_news() if sharing.news else None
            told = back.packed() if back else b""
            head, payload, buffers = pack(frame, places)
            if buffers or len(payload) > _JOIN:
                self._write([told + head, payload, *buffers], deadline)
            else:
                self._put(told + head + payload, deadline)
        except BaseException:
            sharing.outbox.revoke(places)
            if back is not None:
                sharing.keep(back)
            raise

    def _put(self, data: bytes, deadline: Optional[float]) -> None:
        """Write what is small: the whole of it leaves with one call unless the other end is far behind."""
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise LaneEnd(f"the other end is gone ({error})") from error
        if sent < len(data):
            self._write([memoryview(data)[sent:]], deadline, begun=sent > 0)

    def _announce(self, announcements: list[Announcement], deadline: Optional[float]) -> None:
        while announcements:
            news = announcements.pop(0)
            data = Sharing.announcement(news)
            aside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [news.fd]))]
            try:
                sent = self._send_some([data], deadline, aside)
            except BaseException:
                announcements.insert(0, news)
                raise
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

    def _send_some(self, parts: Sequence[Bytes], deadline: Optional[float], aside: Sequence[Any] = ()) -> int:
        """Write some of the parts, waiting until that is possible, and return how many bytes went out."""
        try:
            return self.sock.sendmsg(parts, aside)
        except OSError as error:
            raise LaneEnd(f"the other end is gone ({error})") from error

    # ---- reading

    def receive(self) -> Frame:
        """Return the next frame. Interrupted by an exception it goes on where it was at the next call."""
        while True:
            if self._start == self._end and self._arriving is None:
                self._fill()
            frame = self._step()
            if frame is None:
                self._fill()
            elif frame.kind in _OWN_KINDS:
                self._hear(frame)
            else:
                return frame

    def _hear(self, frame: Frame) -> None:
        if self.sharing is None:
            raise FrameBroken("a frame of an arena came on a lane that has none")
        self.sharing.hear(frame)

    def _step(self) -> Optional[Frame]:
        """Return a frame if what was read so far completes one."""
        if self._arriving is None:
            start = self._start + HEAD.size
            if self._end < start:
                return None
            found = whole(self._buffer, self._start, self._end, self.payload_limit)
            if found is not None:
                frame, places, self._start = found
                return frame._replace(buffers=[self._look(place) for place in places]) if places else frame
            head = unpack(self._buffer[self._start:start], self.payload_limit)
            self._start = start
            self._arriving = _Arriving(head)
        return self._go_on(self._arriving)

    def _go_on(self, arriving: _Arriving) -> Optional[Frame]:
        while True:
            self._pour(arriving.targets)
            if arriving.targets:
                return None
            if arriving.payload is not None:
                self._arriving = None
                return finish(arriving.head, arriving.payload, [self._look(b) for b in arriving.buffers])
            arriving.expect_buffers(self._headroom)

    def _look(self, buffer: Any) -> Any:
        """Return a buffer: what was filled, or what lies in shared memory."""
        if type(buffer) is not Placed:
            return buffer
        if self.sharing is None:
            raise FrameBroken("a buffer lies in shared memory on a lane that has none")
        return self.sharing.inbox.take(buffer)

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
        if self._await is not None:
            self._await()
        try:
            size, aside, _, _ = self.sock.recvmsg_into([target], ASIDE, CLOSED_ON_EXEC)
        except OSError as error:
            raise LaneEnd(f"the other end is gone ({error})") from error
        if aside:
            self.take_descriptors(aside)
        if not size:
            raise LaneEnd("the other end closed the lane")
        return size

    def take_descriptors(self, aside: Sequence[Any]) -> None:
        """Keep descriptors that came along; those that nobody can want are closed."""
        came = array.array("i")
        for _, kind, data in aside:
            if kind == socket.SCM_RIGHTS:
                came.frombytes(data[:len(data) - len(data) % came.itemsize])
        if self.sharing is not None:
            self.sharing.arrived(came)
            return
        for fd in came:
            os.close(fd)

    def trim(self) -> int:
        """Give memory of the arena that nobody looks at back to the system; return how many bytes that were."""
        with self._mutex:
            return 0 if self.sharing is None else self.sharing.outbox.trim()

    def close(self) -> None:
        """Close this end; a thread that waits in it wakes up."""
        with contextlib.suppress(OSError):  # the other end closed first
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        if self.sharing is not None:
            self.sharing.close()


def _drop(queue: list[memoryview], sent: int) -> None:
    """Take the first ``sent`` bytes off the queue."""
    while queue and sent >= len(queue[0]):
        sent -= len(queue.pop(0))
    if sent:
        queue[0] = queue[0][sent:]
