"""The receiving half of an arena: what the other end lends is looked at where it lies, and given back when nobody looks.

A lease ends when the last view of it does. The finalizer only puts its number into a queue, since it may run in the
middle of anything; whoever writes to the lane next sends it along.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Union

from . import blocks, segments
from .cleaner import Cleaner
from .faults import FrameBroken
from .frames import ON_DEVICE, Placed

MOST_SEGMENTS = 4096
_NO_MEMORY = (OSError, ValueError, OverflowError)
_keys = itertools.count(1)


class Missing(NamedTuple):
    """Stands for a buffer that cannot be looked at; ``why`` says what for."""

    why: str


class Mapped:
    """A segment of the other end's as it is mapped here. It lives as long as a view of it or its entry in the inbox."""

    def __init__(self, size: int, fd: int) -> None:
        self.key = next(_keys)
        self.size = size
        self.fd = fd
        self.memory: Optional[mmap.mmap] = None
        self.base = 0
        self.why = "" if fd >= 0 else "a descriptor of shared memory did not arrive: too many files are open in this process"
        self.leases: dict[int, int] = {}     # where a lease starts -> how long it is, for those that are looked at
        self.orphaned = False                # the other end uses its memory no more: what nobody looks at is of no use
        if fd >= 0:
            weakref.finalize(self, os.close, fd).atexit = False

    def map(self, private: bool, wary: bool) -> None:
        if os.fstat(self.fd).st_size < self.size:
            raise FrameBroken("a segment of shared memory is smaller than its sender says")
        if wary and not segments.is_sealed(self.fd):
            return   # it is read instead: one that shrinks would end this process
        try:
            self.memory = (segments.map_private if private else segments.map_shared)(self.fd, self.size)
            self.base = segments.address(self.memory)
        except _NO_MEMORY as error:
            self.why = f"{self.size} bytes of shared memory cannot be mapped in this process ({error})"

    def give_back(self, start: int, end: int) -> None:
        """Give the whole pages of a range back to the system."""
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end -= end % mmap.PAGESIZE
        if self.memory is not None and end > start:
            with contextlib.suppress(AttributeError, OSError):   # a system that cannot: they go with the last look at the segment
                self.memory.madvise(mmap.MADV_REMOVE, start, end - start)

    def trim(self) -> None:
        """Give back what nobody looks at."""
        done = 0
        for start, size in sorted(self.leases.items()):
            self.give_back(done, start)
            done = max(done, _page_end(start + size))
        self.give_back(done, self.size)

    def read(self, offset: int, size: int) -> memoryview:
        """Return a copy of a range, for what cannot be mapped."""
        copy = blocks.allocate(size)
        done = 0
        while done < size:
            got = os.preadv(self.fd, [copy[done:]], offset + done)
            if not got:
                raise FrameBroken("a segment of shared memory ended early")
            done += got
        return copy


class Ended(NamedTuple):
    """News: nobody looks at this any more. ``own`` tells whether it had a mapping of its own."""

    placed: Placed
    own: bool


class Back(NamedTuple):
    """News: this lease can be given back as it is."""

    lease: int


class Refused(NamedTuple):
    """News: this segment cannot be looked at here."""

    number: int


class LoanEnd:
    """News: device memory is not looked at any more. ``finish`` waits until this process's work on it is done."""

    def __init__(self, lease: int) -> None:
        self.lease = lease
        self.finish: Optional[Callable[[], Any]] = None

    def settle(self) -> int:
        """Return the lease that can be given back now."""
        if self.finish is not None:
            with contextlib.suppress(RuntimeError):   # the device fails every request: nothing works on this memory either
                self.finish()
        return self.lease


class Loan:
    """Stands for device memory that the other end lends; the lease goes back when this object is no more."""

    def __init__(self, lease: int, news: deque[Any]) -> None:
        self.end = LoanEnd(lease)
        weakref.finalize(self, news.append, self.end).atexit = False


def _end(news: deque[Any], ended: Ended, segment: Mapped) -> None:
    """Put an end among the news; until then this function's arguments keep its segment."""
    news.append(ended)
    if segment.orphaned:
        segment.give_back(ended.placed.offset, _page_end(ended.placed.offset + ended.placed.size))


def _page_end(end: int) -> int:
    return -(-end // mmap.PAGESIZE) * mmap.PAGESIZE


class Inbox:
    """What the other end lends. Read by whoever receives, emptied by whoever sends.

    ``private``: what is written here must not be seen elsewhere. ``wary``: the other end is not trusted to leave a
    segment's size alone.
    """

    def __init__(self, private: bool, wary: bool, mapped: Callable[[Mapped], Any] = lambda segment: None) -> None:
        self.news: deque[Any] = deque()
        self._private = private
        self._wary = wary
        self._tell = mapped
        self._segments: dict[int, Mapped] = {}
        self._arrays: dict[int, Any] = {}
        self._busy: set[tuple[int, int]] = set()    # blocks that are looked at through their segment's mapping
        self._cleaner = Cleaner()
        self.lock = threading.RLock()   # held by whoever takes from the news
        self._taken = self._given = 0

    @property
    def live(self) -> int:
        """How many leases are looked at."""
        self.settle()
        return self._taken - self._given

    # ---- segments

    def adopt(self, number: int, size: int, fd: int) -> None:
        """Map a segment that the other end announced; one that cannot be mapped is refused and not used again.

        ``fd`` is -1 for a descriptor that was lost on its way.
        """
        segment = Mapped(size, fd)
        if number in self._segments or len(self._segments) >= MOST_SEGMENTS:
            raise FrameBroken(f"segment {number} of shared memory is announced twice, or is one too many")
        self._segments[number] = segment
        if not segment.why:
            segment.map(self._private, self._wary)
        if segment.why:
            self.news.append(Refused(number))
        elif segment.memory is not None:
            self._tell(segment)

    def forget(self, number: int) -> None:
        """Let go of a segment that the other end will not name again."""
        self._segments.pop(number, None)

    # ---- leases

    def take(self, placed: Placed) -> Union[memoryview, Missing, Loan]:
        """Return a buffer that lies in shared memory; raises FrameBroken if it lies nowhere."""
        if placed.segment == ON_DEVICE:
            return Loan(placed.lease, self.news)
        with self.lock:   # a lease is known before `close` can take its memory for unused
            segment = self._segments.get(placed.segment)
            if segment is None or placed.offset + placed.size > segment.size or not placed.size or placed.block > placed.offset:
                raise FrameBroken(f"a buffer of {placed.size} bytes lies nowhere in segment {placed.segment} of shared memory")
            if segment.memory is not None:
                self._taken += 1
                return self._look(segment, segment.memory, placed)
        self.news.append(Back(placed.lease))
        return Missing(segment.why) if segment.why else segment.read(placed.offset, placed.size)

    def _look(self, segment: Mapped, memory: mmap.mmap, placed: Placed) -> Union[memoryview, Missing]:
        start = placed.offset
        own = self._private and self._is_looked_at(placed)
        if own:   # the first view of this block may have been written to
            start = placed.offset % mmap.PAGESIZE
            try:
                memory = segments.map_private(segment.fd, start + placed.size, placed.offset - start)
            except _NO_MEMORY as error:
                self.news.append(Ended(placed, own))
                return Missing(f"{placed.size} bytes of shared memory cannot be mapped once more ({error})")
        owner = self._array(placed.size).from_buffer(memory, start)
        segment.leases[placed.offset] = placed.size
        weakref.finalize(owner, _end, self.news, Ended(placed, own), segment).atexit = False
        return memoryview(owner).cast("B")

    def _is_looked_at(self, placed: Placed) -> bool:
        """Tell whether a block is looked at through its segment's mapping; if not, it is from now on."""
        self.settle()
        with self.lock:
            key = (placed.segment, placed.block)
            if key in self._busy:
                return True
            self._busy.add(key)
            return False

    def _array(self, size: int) -> Any:
        """Return the array type of a size; making one costs more than all the rest of a small call."""
        kind = self._arrays.get(size)
        if kind is None:
            if len(self._arrays) > 256:
                self._arrays.clear()
            kind = self._arrays[size] = ctypes.c_ubyte * size
        return kind

    def settle(self) -> None:
        """Turn the ends among the news into what can be given back."""
        news = self.news
        with self.lock:
            for _ in range(len(news)):
                one = news.popleft()
                news.append(Back(self.settled(one)) if type(one) is Ended else one)

    def settled(self, ended: Ended) -> int:
        """Have the pages of an ended lease follow the other end's memory again; then it can be given back by its number."""
        placed, own = ended
        with self.lock:
            segment = self._segments.get(placed.segment)
            if segment is not None:   # else nobody will look at it again
                self._forget_lease(segment, placed, own)
            self._given += 1
        return placed.lease

    def _forget_lease(self, segment: Mapped, placed: Placed, own: bool) -> None:
        if segment.leases.get(placed.offset) == placed.size:
            del segment.leases[placed.offset]
        if self._private and not own:
            self._clean(segment, placed)

    def _clean(self, segment: Mapped, placed: Placed) -> None:
        start = placed.offset - placed.offset % mmap.PAGESIZE
        size = -(-(placed.offset + placed.size - start) // mmap.PAGESIZE) * mmap.PAGESIZE
        if segment.memory is not None:
            self._cleaner.clean(segment.memory, segment.base, start, size)
        self._busy.discard((placed.segment, placed.block))

    def close(self) -> None:
        """Let go of everything but what is still looked at; of a segment that holds more than that, the rest goes back to the system."""
        with self.lock:
            held = [] if self._private else list(self._segments.values())
            for segment in held:
                segment.orphaned = True   # before the ends among the news are counted: none is missed
            if held:
                self.settle()
            self._segments.clear()
            for segment in held:
                if segment.leases:
                    segment.trim()
        self._cleaner.close()
