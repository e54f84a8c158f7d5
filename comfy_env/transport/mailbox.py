"""Who reads a lane: no thread of its own, but whoever waits for something reads for all.

A thread that waits for frames of its request reads the lane itself if nobody does; what it reads for others it leaves
in their boxes. So a call costs no thread hop, and several threads can wait on one lane.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from comfy_env.errors import FrameDamaged, LaneLost
from comfy_env.transport.limits import Limit, is_over, receive, wait_now
from comfy_env.values import Lane
from comfy_env.worker.wire.frames import Frame


class Mailbox:
    """The boxes of one lane, by request. ``late`` counts frames that answer nobody any more."""

    def __init__(self, lane: Lane, also: tuple[int, ...], generation: int, explain: Callable[[Exception], Exception]) -> None:
        self.late = 0
        self.lost: Exception | None = None
        self._lane = lane
        self._also = also
        self._generation = generation
        self._explain = explain
        self._boxes: dict[int, deque[Frame]] = {}
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._followers = 0
        self._reading = False

    def open(self, request: int) -> None:
        """Make a box for a request: its frames are kept from now on."""
        self._boxes[request] = deque()

    def close(self, request: int) -> None:
        """Remove a request's box: what still comes for it is late."""
        self._boxes.pop(request, None)

    def next(self, request: int, limit: Limit) -> Frame:
        """Return the next frame for a request; TimeoutError at the limit, LaneLost or FrameDamaged when the lane is gone."""
        box = self._boxes[request]
        while True:
            with self._lock:
                if box:
                    return box.popleft()
                if self.lost is not None:
                    raise self._explain(self.lost)
                if self._reading:
                    self._follow(box, limit)
                    continue
                self._reading = True
            frame = self._read(request, limit)
            if frame is not None:
                return frame

    def lose(self, error: Exception) -> None:
        """The lane is gone: everybody who waits hears of it."""
        with self._lock:
            self.lost = self.lost or type(error)(getattr(error, "message", str(error)))   # without the frames it was raised in
            self._reading = False
            self._news.notify_all()

    def _follow(self, box: deque[Frame], limit: Limit) -> None:
        """Wait while another thread reads."""
        self._followers += 1
        try:
            told = self._news.wait(wait_now(limit))
        finally:
            self._followers -= 1
        if not told and not box and self._reading and is_over(limit):
            raise TimeoutError("the worker did not answer before the deadline")

    def _read(self, request: int, limit: Limit) -> Frame | None:
        """Read one frame as the one who reads for all; return it if it is this request's."""
        try:
            frame = receive(self._lane, limit, self._also)
        except (LaneLost, FrameDamaged) as error:
            self.lose(error)
            raise self._explain(error) from error
        except BaseException:   # a limit or an interrupt of this thread: another one may read now
            with self._lock:
                self._pass_on()
            raise
        with self._lock:
            self._reading = False
            if self._followers:
                self._news.notify_all()
            if frame.request == request and frame.generation == self._generation:
                return frame
            self._deliver(frame)
            return None

    def _pass_on(self) -> None:
        self._reading = False
        if self._followers:
            self._news.notify_all()

    def _deliver(self, frame: Frame) -> None:
        """Leave another request's frame in its box, or count it as late."""
        box = self._boxes.get(frame.request) if frame.generation == self._generation else None
        if box is None:
            self.late += 1
        else:
            box.append(frame)
