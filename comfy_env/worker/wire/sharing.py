"""An arena on one lane: both its halves, and what they tell each other between frames.

SEGMENT brings a descriptor along; RETURN rides in front of the next frame, so that giving back costs no call of its own.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from . import blocks
from .devices import Ticket
from .faults import FrameBroken
from .frames import Frame, Placed, pack
from .inbox import Back, Ended, Inbox, LoanEnd, Refused
from .kinds import Kind
from .outbox import Announcement, Gone, Outbox

_SEGMENT = struct.Struct("<QQQQ")   # number, size, and which file it is
_COUNTS = struct.Struct("<III")     # leases given back, segments refused, segments forgotten
_DESCRIPTORS = 8                    # that may wait for their frames at once


class Return(NamedTuple):
    """What goes back in front of one frame."""

    leases: list[int]
    refused: list[int]
    forgotten: list[int]

    def packed(self) -> bytes:
        numbers = [*self.leases, *self.refused, *self.forgotten]
        payload = _COUNTS.pack(*map(len, self)) + struct.pack(f"<{len(numbers)}Q", *numbers)
        head, _, _ = pack(Frame(Kind.RETURN, payload=payload))
        return head + payload

    @classmethod
    def unpacked(cls, payload: bytes) -> Return:
        leases, refused, forgotten = _COUNTS.unpack_from(payload)
        numbers = struct.unpack_from(f"<{leases + refused + forgotten}Q", payload, _COUNTS.size)
        return cls(list(numbers[:leases]), list(numbers[leases:leases + refused]), list(numbers[leases + refused:]))


class Sharing:
    """The arena of one end of a lane. ``news`` is what is to be told with the next frame; finalizers only append to it."""

    def __init__(self, outbox: Outbox, inbox: Inbox) -> None:
        self.outbox = outbox
        self.inbox = inbox
        self.news = outbox.news = inbox.news
        self._descriptors: deque[int] = deque()

    # ---- writing; under the lane's mutex

    def place(self, buffers: Sequence[memoryview]) -> list[Optional[Placed]]:
        """Lend the large ones of these buffers; all or none: raises NoRoom."""
        places: list[Optional[Placed]] = []
        try:
            for buffer in buffers:
                places.append(self._placed(buffer))
        except BaseException:
            self.outbox.revoke(places)
            raise
        return places

    def _placed(self, buffer: memoryview) -> Optional[Placed]:
        if buffer.nbytes >= blocks.SHARED:
            return self.outbox.place(buffer)
        return self.outbox.lend(buffer.obj) if type(buffer.obj) is Ticket else None

    def take_news(self) -> Return:
        """Return what is to be told now."""
        back = Return([], [], [])
        with self.inbox.lock:
            for _ in range(len(self.news)):
                self._take(self.news.popleft(), back)
        return back

    def _take(self, one: Any, back: Return) -> None:
        if type(one) is Ended:
            back.leases.append(self.inbox.settled(one))
        elif type(one) is Back:
            back.leases.append(one.lease)
        elif type(one) is LoanEnd:
            back.leases.append(one.settle())
        elif type(one) is Refused:
            back.refused.append(one.number)
        else:
            self.outbox.forget(one)
            back.forgotten.append(one.number)

    def keep(self, back: Return) -> None:
        """Tell it another time: the frame it was to travel with did not leave."""
        self.news.extend(map(Back, back.leases))
        self.news.extend(map(Refused, back.refused))
        self.news.extend(Gone(0, number) for number in back.forgotten)

    @staticmethod
    def announcement(news: Announcement) -> bytes:
        """Return the frame that tells of a segment."""
        which = os.fstat(news.fd)
        payload = _SEGMENT.pack(news.number, news.size, which.st_dev, which.st_ino)
        head, _, _ = pack(Frame(Kind.SEGMENT, payload=payload))
        return head + payload

    # ---- reading

    def arrived(self, descriptors: Sequence[int]) -> None:
        """Keep descriptors that came until their frames do."""
        self._descriptors.extend(descriptors)
        if len(self._descriptors) > _DESCRIPTORS:
            self._close_descriptors()
            raise FrameBroken("descriptors came that no frame tells of")

    def hear(self, frame: Frame) -> None:
        """Take a frame that is the arena's own; raises FrameBroken for one that no sound sender writes."""
        try:
            if frame.kind == Kind.SEGMENT:
                number, size, *which = _SEGMENT.unpack(frame.payload)
                self.inbox.adopt(number, size, self._descriptor(which))
            else:
                self._take_returned(Return.unpacked(bytes(frame.payload)))
        except struct.error as error:
            raise FrameBroken(f"a frame of the arena has another shape than it must ({error})") from error

    def _take_returned(self, back: Return) -> None:
        self.outbox.take_back(back.leases)
        self.outbox.refuse(back.refused)
        for number in back.forgotten:
            self.inbox.forget(number)

    def _descriptor(self, which: list[int]) -> int:
        """Return the descriptor that a frame brought, -1 if it was lost: a full table of files drops it silently."""
        if self._descriptors:
            found = os.fstat(self._descriptors[0])
            if [found.st_dev, found.st_ino] == which:
                return self._descriptors.popleft()
        return -1

    def close(self) -> None:
        self.outbox.close()
        self.inbox.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popleft())
