"""The sending half of an arena: segments of shared memory carved into blocks, which are lent out and come back.

A block's size is a power of two and its place a multiple of it. Blocks that came back are used again, last come first
served: their pages are there already, and copying into them costs a twentieth of copying into fresh ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Optional

from . import segments
from .faults import NoRoom
from .frames import ON_DEVICE, Placed
from .headroom import Headroom

FIRST = 64 * 1024 * 1024
"""Size of the first segment; each further one is twice as large as the one before it, so that a few are enough for anything."""

_SILENT = 1 << 20     # copies of at least so many bytes are made without the interpreter's lock
_REFUSED = 0          # no segment has this number
_NO_MEMORY = (OSError, ValueError, OverflowError)


class Segment:
    """A segment of this end's own. ``top`` is where nothing was carved yet, ``refused``: the other end cannot look at it."""

    def __init__(self, number: int, size: int, label: str) -> None:
        self.number = number
        self.size = size
        self.top = 0
        self.refused = False
        self.fd = segments.create(size, label)
        weakref.finalize(self, os.close, self.fd).atexit = False
        self.memory = segments.map_shared(self.fd, size)
        self.view = memoryview(self.memory)
        self.base = segments.address(self.memory)

    def carve(self, power: int) -> Optional[Block]:
        """Return a new block of 2**power bytes, None if there is no place for it."""
        start = -(-self.top >> power) << power
        if start + (1 << power) > self.size:
            return None
        self.top = start + (1 << power)
        return Block(self, start, power)


class Block:
    """A piece of a segment. ``ready`` is how many of its bytes have pages."""

    __slots__ = ("segment", "start", "power", "ready")

    def __init__(self, segment: Segment, start: int, power: int) -> None:
        self.segment = segment
        self.start = start
        self.power = power
        self.ready = 0

    def prepare(self, size: int, headroom: Headroom) -> None:
        """Have pages for so many bytes; raises NoRoom before any is taken, OSError where the memory has another limit."""
        wanted = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if wanted > self.ready:
            headroom.take(wanted - self.ready)
            segments.populate(self.segment.memory, self.segment.fd, self.start + self.ready, wanted - self.ready)
            self.ready = wanted

    def forget_pages(self) -> int:
        """Give the pages back to the system; return how many bytes that were."""
        freed, self.ready = self.ready, 0
        if freed:
            self.segment.memory.madvise(mmap.MADV_REMOVE, self.start, freed)
        return freed


class Gone(NamedTuple):
    """News: a segment of somebody else's that was passed on is no more."""

    key: int
    number: int


class Announcement:
    """A segment the other end has not heard of, with a descriptor that is closed when this object goes."""

    def __init__(self, number: int, size: int, fd: int) -> None:
        self.number = number
        self.size = size
        self.fd = fd
        weakref.finalize(self, os.close, fd).atexit = False


Find = Callable[[int, int], Any]
"""Returns for an address and a size which segment of somebody else's they lie in, the offset, and where a lease of it starts."""


def _nothing(address: int, size: int) -> None:
    """An end that looks at nobody's memory but its peer's has nothing to pass on."""


class Outbox:
    """One end's blocks. Used by whoever writes to the lane, under its mutex.

    ``share`` makes the descriptor that the other end gets, ``find`` knows what lies in shared memory already. ``copied``
    and ``spilled`` count the bytes that went into blocks and those for which there was none, ``passed`` those that lay
    in shared memory already.
    """

    def __init__(self, label: str = "", share: Callable[[int], int] = segments.for_readers, find: Find = _nothing) -> None:
        self.announcements: list[Announcement] = []
        self.copied = self.spilled = self.passed = 0
        self._grows = True
        self._label = label
        self._headroom = Headroom()
        self._share = share
        self._find = find
        self._segments: list[Segment] = []
        self._free: dict[int, list[Block]] = {}
        self._lent: dict[int, Any] = {}
        self._leases = itertools.count(1)
        self._numbers = itertools.count(1)
        self._passing: dict[int, int] = {}      # key of a segment of somebody else's -> its number here
        self._watches: list[weakref.finalize] = []
        self.news: deque[Any] = deque()

    # ---- lending

    def place(self, view: memoryview) -> Optional[Placed]:
        """Lend the other end a block that holds these bytes; None if they must travel with the frame. Raises NoRoom."""
        where = address_of(view)
        placed = None if where is None else self._pass_on(view, where)
        return placed or self._copy(view, where)

    def lend(self, ticket: Any) -> Placed:
        """Lend memory of a device; the ticket keeps it."""
        return self._lend(ticket, ticket.size, 0, 0, ON_DEVICE)

    def revoke(self, placed: Iterable[Optional[Placed]]) -> None:
        """Take back what was lent for a frame that did not leave."""
        self.take_back(one.lease for one in placed if one is not None)

    def take_back(self, leases: Iterable[int]) -> None:
        """Use the blocks of these leases again, and let go of what was passed on with them. From any thread."""
        for lease in leases:
            thing = self._lent.pop(lease, None)
            if type(thing) is Block:
                self._keep(thing)

    def _keep(self, block: Block) -> None:
        if not block.segment.refused:
            self._free.setdefault(block.power, []).append(block)

    def refuse(self, numbers: Iterable[int]) -> None:
        """Place nothing more in segments that the other end cannot look at, and make no further ones. From any thread."""
        for number in numbers:
            for key in [key for key, other in self._passing.items() if other == number]:
                self._passing[key] = _REFUSED
            for segment in [segment for segment in self._segments if segment.number == number]:
                self._grows = False
                segment.refused = True
                self._segments = [other for other in self._segments if other is not segment]
                for power, free in list(self._free.items()):
                    self._free[power] = [block for block in free if block.segment is not segment]

    def _copy(self, view: memoryview, where: Optional[int]) -> Optional[Placed]:
        size = view.nbytes
        block = self._block(size)
        if block is None:
            self.spilled += size
            return None
        segment, start = block.segment, block.start
        if where is None or size < _SILENT:
            segment.view[start:start + size] = view
        else:
            ctypes.memmove(segment.base + start, where, size)
        self.copied += size
        return self._lend(block, size, start, start, segment.number)

    def _lend(self, thing: Any, size: int, offset: int, block: int, number: int) -> Placed:
        lease = next(self._leases)
        self._lent[lease] = thing
        return Placed(size, offset, lease, block, number)

    # ---- what lies in shared memory already

    def _pass_on(self, view: memoryview, where: int) -> Optional[Placed]:
        """Lend memory that another end shares with this one; whoever looks at it keeps it alive meanwhile."""
        found = self._find(where, view.nbytes)
        if found is None:
            return None
        segment, offset, block = found
        number = self._passing.get(segment.key)
        if number is None:
            number = self._introduce(segment)
        if number == _REFUSED:
            return None
        self.passed += view.nbytes
        return self._lend(view, view.nbytes, offset, block, number)

    def _introduce(self, segment: Any) -> int:
        """Have a segment of somebody else's announced and return its number; _REFUSED for now if there is no descriptor."""
        number = next(self._numbers)
        if not self._announce(number, segment):
            return _REFUSED
        self._passing[segment.key] = number
        watch = weakref.finalize(segment, self.news.append, Gone(segment.key, number))
        watch.atexit = False
        self._watches.append(watch)
        return number

    def _announce(self, number: int, segment: Any) -> bool:
        with contextlib.suppress(OSError):   # no descriptor to be had: the bytes are copied, or travel with the frame
            self.announcements.append(Announcement(number, segment.size, self._share(segment.fd)))
            return True
        return False

    def forget(self, gone: Gone) -> None:
        self._passing.pop(gone.key, None)

    # ---- blocks

    def _block(self, size: int) -> Optional[Block]:
        """Return a block with pages for so many bytes, None if shared memory cannot be had."""
        power = (max(size, segments.SMALLEST) - 1).bit_length()
        with contextlib.suppress(*_NO_MEMORY):   # then the bytes travel with the frame
            block = self._used(power) or self._carved(power) or self._from_new_segment(power)
            return None if block is None else self._prepared(block, size)
        return None

    def _prepared(self, block: Block, size: int) -> Block:
        try:
            self._prepare(block, size)
        except BaseException:
            self._keep(block)
            raise
        return block

    def _prepare(self, block: Block, size: int) -> None:
        """Have pages for a block; those of blocks that nobody uses are given up before anything is refused."""
        try:
            block.prepare(size, self._headroom)
        except NoRoom:
            if not self.trim():
                raise
            block.prepare(size, self._headroom)

    def _used(self, power: int) -> Optional[Block]:
        free = self._free.get(power)
        return free.pop() if free else None

    def _carved(self, power: int) -> Optional[Block]:
        for segment in reversed(self._segments):
            block = segment.carve(power)
            if block is not None:
                return block
        larger = [other for other, free in list(self._free.items()) if other > power and free]
        return self._free[min(larger)].pop() if larger else None

    def _from_new_segment(self, power: int) -> Optional[Block]:
        if not self._grows:
            return None
        size = max(FIRST << len(self._segments), 1 << power)
        try:
            segment = Segment(next(self._numbers), size, self._label)
        except _NO_MEMORY:
            if size == 1 << power:
                raise
            segment = Segment(next(self._numbers), 1 << power, self._label)
        if not self._announce(segment.number, segment):
            return None
        self._segments.append(segment)
        return segment.carve(power)

    # ---- the end, and on the way there

    @property
    def lent(self) -> int:
        """How many blocks and pieces of others' memory the other end has."""
        return len(self._lent)

    def trim(self) -> int:
        """Give the pages of blocks that are not lent back to the system; return how many bytes that were."""
        return sum(block.forget_pages() for free in list(self._free.values()) for block in free)

    def close(self) -> None:
        """Let go of everything, from any thread; what the other end still looks at stays there for it."""
        self._grows = False
        for watch in self._watches:
            watch.detach()
        for held in (self.announcements, self._segments, self._lent, self._free, self._watches):
            held.clear()


def address_of(view: memoryview) -> Optional[int]:
    """Return where bytes lie, None for those of an object that does not tell."""
    if not view.readonly:
        return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))
    exporter: Any = view.obj
    while type(exporter) is memoryview and exporter.nbytes == view.nbytes:
        exporter = exporter.obj
    if isinstance(exporter, ctypes.Array):
        return ctypes.addressof(exporter) if ctypes.sizeof(exporter) == view.nbytes else None
    interface = getattr(exporter, "__array_interface__", None)
    return interface["data"][0] if interface is not None and exporter.nbytes == view.nbytes else None
