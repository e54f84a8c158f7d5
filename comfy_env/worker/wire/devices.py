"""Device memory across a lane: it stays where it is, and the other end is told where.

A tensor on a device travels as the handle of the allocation it lies in, its place there, and an event from which on its
bytes are right. Sender and receiver see the same device, known by its UUID. The sender keeps the memory until the lease
comes back, which rides with those of the arena. The receiver makes a copy of its own on the device before it goes on, so
that neither a write nor the sender's death reaches it; a worker may be told to look at its inputs *in place* instead.

Nothing is lent before a device was proved in both directions, and nothing imports torch or touches a device before a
tensor on one is met. What the device itself can do is behind `Card`.
"""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Protocol

from . import blocks
from .faults import CannotShare, DecodeFault, DeviceGone, Unproved
from .inbox import Loan

ASK = "comfy_env:devices"
"""The name under which a worker has its host prove a device before it sends a tensor on it."""

MOST_OPEN = 64
"""Allocations of the other end that stay open for what comes next; each keeps its memory from going back to the device."""


class Export(NamedTuple):
    """Memory as another process can find it. ``event`` lives as long as the other end may ask for ``ready``."""

    handle: bytes
    offset: int
    ready: bytes
    event: Any


class Region(NamedTuple):
    """An allocation of another process as it is seen here."""

    base: int
    size: int


class Card(Protocol):
    """All that is asked of a device; ``index`` is its number in this process. Methods raise CannotShare where they say no."""

    kind: str

    def uuids(self) -> list[str]:
        """Return the devices of this process by number."""

    def facts(self) -> dict[str, str]:
        """Return what must be equal at both ends."""

    def address(self, tensor: Any) -> int:
        """Return where on its device a tensor's first byte lies."""

    def export(self, tensor: Any) -> Export:
        """Return how another process finds a tensor's memory, with all work on it that was asked for until now."""

    def open(self, index: int, handle: bytes) -> Region:
        """Look at another process's allocation."""

    def close(self, index: int, region: Region) -> None:
        """Look no more."""

    def wait(self, index: int, ready: bytes) -> None:
        """Have all work that is asked for from now on begin after another process's event."""

    def view(self, index: int, region: Region, offset: int, size: int, keep: Any) -> Any:
        """Return bytes of a region as a tensor that keeps ``keep`` alive."""

    def finish(self, index: int, everything: bool = False) -> None:
        """Wait until the work that this thread asked for is done, or that of every thread."""

    def place(self, tensor: Any, index: int) -> Any:
        """Return a copy of a host tensor on the device."""


class Ticket(ctypes.c_ubyte * 1):  # type: ignore[misc]
    """Stands among a message's buffers for memory that is lent with it."""

    size: int
    keep: Any


def ticket_for(size: int, *keep: Any) -> Ticket:
    ticket = Ticket()
    ticket.size, ticket.keep = size, keep
    return ticket


class Borrowed:
    """An open allocation of the other end's; closed when neither the list of open ones nor a view has it."""

    def __init__(self, card: Card, index: int, handle: bytes) -> None:
        self.region = card.open(index, handle)
        weakref.finalize(self, card.close, index, self.region).atexit = False


class Devices:
    """One end of a lane as it deals with device memory; any thread may use it.

    ``verdicts``: for each device that was proved why its memory is not shared, "" if it is. ``wary``: nothing is taken
    that was not agreed on. ``settles``: what is lent is complete before it leaves, since work on it could end with this
    process. ``in_place``: what is lent to this end is looked at where it lies. ``strict``: what cannot be lent does not go
    another way, since a device is being proved. ``say`` is told once per device what took
    the way through the host's memory although the device was proved.
    """

    def __init__(self, find_card: Callable[[], Card], wary: bool = False, settles: bool = False,
                 say: Callable[[str], Any] = lambda text: None) -> None:
        self.verdicts: dict[str, str] = {}
        self.in_place = False
        self.strict = False
        self.opened = self.lent = self.hops = 0
        self._find_card = find_card
        self._wary = wary
        self._settles = settles
        self._say = say
        self._said: set[str] = set()
        self._lock = threading.RLock()
        self._closed = False
        self._open: OrderedDict[tuple[int, bytes], Borrowed] = OrderedDict()
        self._known: weakref.WeakValueDictionary[tuple[int, bytes], Borrowed] = weakref.WeakValueDictionary()

    @property
    def card(self) -> Card:
        """This process's device memory; raises CannotShare where there is none to be shared."""
        return self._find_card()

    def find(self, uuid: str) -> int:
        """Return a device's number here; raises CannotShare."""
        uuids = self.card.uuids()
        if uuid not in uuids:
            raise CannotShare(f"device {uuid} is not among those of this process ({', '.join(uuids) or 'none'})")
        return uuids.index(uuid)

    def name(self, device: Any) -> str:
        """Return a device's name for the other end, by UUID too where it has one: numbers differ between processes."""
        try:
            card = self.card
            return f"{device} {card.uuids()[device.index]}" if device.type == card.kind else str(device)
        except CannotShare:
            return str(device)

    # ---- lending

    def lends(self, tensor: Any) -> bool:
        """Tell whether a tensor's memory is lent, raising Unproved before that was tried; small ones are not worth it."""
        try:
            card = self.card
        except CannotShare as fault:
            self.hops += 1
            self._complain(str(tensor.device), str(fault))
            return False
        if tensor.device.type != card.kind or blocks.rides_in_frame(tensor.numel() * tensor.element_size()):
            return False
        uuid = card.uuids()[tensor.device.index]
        why = self.verdicts.get(uuid)
        if why is None:
            raise Unproved(uuid)
        self.hops += bool(why)
        return not why

    def lend(self, tensor: Any) -> Optional[tuple[Any, ...]]:
        """Return what the other end must know of a dense tensor's memory; None if it must take the other way."""
        card, size = self.card, tensor.numel() * tensor.element_size()
        index = tensor.device.index
        uuid = card.uuids()[index]
        try:
            tensor = tensor.clone() if self._is_borrowed(card, index, tensor) else tensor
            if self._settles:
                card.finish(index)
            export = card.export(tensor)
        except CannotShare as fault:
            if self.strict:
                raise
            self.hops += 1
            self._complain(uuid, str(fault))
            return None
        self.lent += 1
        ticket = ticket_for(size, tensor, export.event)
        return uuid, _text(export.handle), export.offset, size, _text(export.ready), pickle.PickleBuffer(ticket)

    def _is_borrowed(self, card: Card, index: int, tensor: Any) -> bool:
        """Tell whether a tensor lies in memory of the other end's, which only that one can show to others."""
        where = card.address(tensor)
        with self._lock:
            return any(number == index and one.region.base <= where < one.region.base + one.region.size
                       for (number, _), one in self._known.items())

    def _complain(self, uuid: str, why: str) -> None:
        if uuid not in self._said:
            self._said.add(uuid)
            self._say(f"a tensor on device {uuid} goes through the host's memory: {why}")

    # ---- borrowing

    def borrow(self, uuid: str, handle: str, offset: int, size: int, ready: str, loan: Loan) -> Any:
        """Return the bytes of lent memory as a flat tensor; raises DecodeFault, DeviceGone."""
        _check(uuid, handle, offset, size, ready, loan)
        if self._wary and self.verdicts.get(uuid) != "":
            raise DecodeFault(f"memory of device {uuid} came and was not agreed on")
        try:
            index = self.find(uuid)
            with self._lock:
                return self._taken(index, self._borrowed(index, bytes.fromhex(handle)), offset, size, bytes.fromhex(ready), loan)
        except CannotShare as fault:
            raise DeviceGone(str(fault)) from fault

    def _taken(self, index: int, borrowed: Borrowed, offset: int, size: int, ready: bytes, loan: Loan) -> Any:
        card, region = self.card, borrowed.region
        if offset < 0 or size <= 0 or offset + size > region.size:
            raise DecodeFault(f"{size} bytes at {offset} lie outside of an allocation of {region.size} bytes on a device")
        card.wait(index, ready)
        if self.in_place:
            loan.end.finish = lambda: card.finish(index, everything=True)
            return card.view(index, region, offset, size, (borrowed, loan))
        own = card.view(index, region, offset, size, borrowed).clone()
        card.finish(index)   # then the lease may go back
        return own

    def _borrowed(self, index: int, handle: bytes) -> Borrowed:
        key = (index, handle)
        found = self._known.get(key)
        if found is None:
            self.opened += 1
            found = self._known[key] = Borrowed(self.card, index, handle)
        kept = self._open   # another thread may have put a new one in its place already
        if self._closed:
            return found
        kept.pop(key, None)
        kept[key] = found
        if len(kept) > MOST_OPEN:
            kept.popitem(last=False)
        return found

    def put(self, tensor: Any, device: str) -> Any:
        """Return a host tensor's copy on the device of that name; raises CannotShare."""
        return self.card.place(tensor, self.find(device.partition(" ")[2]))

    # ---- the end, and on the way there

    def trim(self) -> None:
        """Close what nobody looks at, so that its owner can give the memory back; from any thread, without waiting."""
        self._open = OrderedDict()

    def close(self) -> None:
        """Close what nobody looks at, and keep nothing open from now on: the other end's memory is not to outlive it."""
        self._closed = True   # first: who took the list before this puts what it opens into the one that goes
        self.trim()


def digest(tensors: Any) -> str:
    """Return what identifies the content of tensors, wherever they are."""
    found = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.cpu().contiguous()
        found.update(ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size()))
    return found.hexdigest()


def _text(data: bytes) -> str:
    """Return bytes as text without the letter b, which would have a wary reader read the message slowly."""
    return data.hex().upper()


def _check(uuid: Any, handle: Any, offset: Any, size: Any, ready: Any, loan: Any) -> None:
    kinds = (type(uuid), type(handle), type(offset), type(size), type(ready), type(loan))
    if kinds != (str, str, int, int, str, Loan):
        raise DecodeFault("device memory is described by something else than it must be")
