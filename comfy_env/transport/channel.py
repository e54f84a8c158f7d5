"""The host's end of one lane: frames with deadlines, and the worker's process watched while waiting."""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from comfy_env.errors import FrameDamaged, LaneLost
from comfy_env.transport.limits import Limit, is_over, wait_now
from comfy_env.worker.wire.faults import FrameBroken, LaneEnd
from comfy_env.worker.wire.frames import PAYLOAD_LIMIT, Bytes, Frame
from comfy_env.worker.wire.spin import Spin
from comfy_env.worker.wire.stream import ASIDE, CLOSED_ON_EXEC, FrameStream

PULSE = 0.1
"""Seconds between two words that a transfer goes on."""

LOOK = 1.0
"""Seconds of one wait at most. A lane that another thread closes just before the wait has lost its number, to anything perhaps."""


class Crashes(Protocol):
    """Where a worker's crash is told before its process has ended."""

    def fileno(self) -> int: ...      # -1 once nothing more can be told
    def look(self) -> object: ...     # what was told, None while nothing was


class _NotYet(Exception):
    """Nothing can be read now."""


class SocketLane(FrameStream):
    """One end of a lane on a socket. Any thread may send; one thread at a time may receive.

    ``session`` is the conversation that was started on it, if any.
    """

    counts_slices = True   # a frame half of which is out is lost at its limit only, and so the limit must be a lived one

    def __init__(self, sock: socket.socket, payload_limit: int = PAYLOAD_LIMIT) -> None:
        sock.setblocking(False)
        super().__init__(sock, payload_limit)
        self.session: Any = None
        self._fd = sock.fileno()
        self._watched: tuple[int, ...] = ()
        self._crashes: Crashes | None = None
        self._poll = self._polling(select.POLLIN)
        self._deadline: float | None = None
        self._wait = True
        self._moved: Callable[[], None] | None = None
        self._told = 0.0
        self._spin = Spin()

    def fileno(self) -> int | None:
        return self.sock.fileno()

    def watch(self, *exits: int) -> None:
        """Let these descriptors end every wait on this lane, for reading and for writing."""
        self._watched = exits
        self._poll = self._polling(select.POLLIN)

    def heed(self, crashes: Crashes | None) -> None:
        """Let a crash end every wait on this lane; what else is written into the crash pipe ends none."""
        self._crashes = crashes
        self._poll = self._polling(select.POLLIN)

    def attend(self, moved: Callable[[], None] | None) -> None:
        """Have it told while bytes of a large frame go out or come in: at the first ones, then every `PULSE` seconds at most."""
        self._moved, self._told = moved, 0.0

    def _pulse(self) -> None:
        moved = self._moved
        if moved is not None and (now := time.monotonic()) - self._told >= PULSE:
            self._told = now
            moved()

    def send(self, frame: Frame, deadline: Limit = None) -> None:
        """Write a frame whole, or not at all (TimeoutError), or lose the lane (LaneLost)."""
        try:
            super().send(frame, deadline)  # type: ignore[arg-type]  # it is only handed back to `_send_some`
        except LaneEnd as end:
            raise LaneLost(str(end)) from end

    def receive(self, deadline: float | None = None, also: tuple[int, ...] = ()) -> Frame:
        """Return the next frame; TimeoutError at the deadline (nothing is lost), LaneLost when ``also`` or the lane end."""
        if also and also != self._watched:
            self.watch(*also)
        self._deadline = deadline
        try:
            return super().receive()
        except LaneEnd as end:
            raise LaneLost(str(end)) from end
        except FrameBroken as broken:
            self.close()
            raise FrameDamaged(str(broken)) from broken

    def receive_now(self) -> Frame | None:
        """Return the next frame if it is here already, else None."""
        self._wait = False
        try:
            return self.receive()
        except _NotYet:
            return None
        finally:
            self._wait = True

    # ---- what FrameStream asks for

    def _read(self, target: memoryview) -> int:
        while True:
            ended = self._wait and self._await_input()
            try:
                size, aside, _, _ = self.sock.recvmsg_into([target], ASIDE, CLOSED_ON_EXEC)
            except BlockingIOError:
                if not self._wait:
                    raise _NotYet from None
                if ended:
                    raise LaneEnd("the worker's process ended") from None
                continue
            except OSError as error:
                raise LaneEnd(f"the worker is gone ({error})") from error
            if aside:
                self.take_descriptors(aside)
            if not size:
                raise LaneEnd("the worker closed the lane")
            if self._arriving is not None:
                self._pulse()
            return size

    def _await_input(self) -> bool:
        """Wait until there is something to read or something ended; True if the lane itself has nothing to say."""
        ready: Sequence[tuple[int, int]] = ()
        while not ready:
            try:
                ready = self._spin.wait(self._poll, _milliseconds(self._deadline))
            except OSError as error:
                raise LaneEnd(f"the lane cannot be waited on ({error})") from error
            if not ready and self.sock.fileno() < 0:
                raise LaneEnd("the lane was closed")
            if not ready and is_over(self._deadline):
                raise TimeoutError("nothing came from the worker before the deadline")
        return ready[0][0] != self._fd and all(fd != self._fd for fd, _ in ready) and self._ended(ready)

    def _ended(self, ready: Sequence[tuple[int, int]]) -> bool:
        """Tell whether one of the other descriptors says that the process ended, or is about to."""
        crashes = self._crashes
        if crashes is None or any(fd in self._watched for fd, _ in ready) or crashes.look() is not None:
            return True
        if crashes.fileno() < 0:
            self.heed(None)
        return False

    def _send_some(self, parts: Sequence[Bytes], deadline: Limit, aside: Sequence[Any] = ()) -> int:
        while True:
            try:
                sent = self.sock.sendmsg(parts, aside)
            except BlockingIOError:
                self._await_room(deadline)
            except OSError as error:
                raise LaneEnd(f"the worker is gone ({error})") from error
            else:
                self._pulse()
                return sent

    def _await_room(self, deadline: Limit) -> None:
        try:
            ready = self._polling(select.POLLOUT).poll(_milliseconds(deadline))
        except OSError as error:
            raise LaneEnd(f"the lane cannot be waited on ({error})") from error
        if not ready and is_over(deadline):
            raise TimeoutError("the worker took nothing more before the deadline")
        if ready and all(fd != self._fd for fd, _ in ready) and self._ended(ready):
            raise LaneEnd("the worker's process ended")

    def _polling(self, events: int) -> select.poll:
        poll = select.poll()
        poll.register(self._fd, events)
        for fd in self._watched:
            poll.register(fd, select.POLLIN)
        if self._crashes is not None and self._crashes.fileno() >= 0:
            poll.register(self._crashes.fileno(), select.POLLIN)
        return poll


def _milliseconds(deadline: Limit) -> int:
    wait = wait_now(deadline)
    return math.ceil((LOOK if wait is None else min(LOOK, wait)) * 1000)

