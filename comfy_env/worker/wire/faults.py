"""What can go wrong on the wire, told without knowing which end it is; each end turns them into its own errors."""

from __future__ import annotations

from typing import Any


class WireFault(Exception):
    """Something on the wire is wrong."""


class LaneEnd(WireFault):
    """The other end is gone, or this end was closed."""


class FrameBroken(WireFault):
    """Framing is lost: the header or the checksum is wrong. Nothing that follows can be trusted."""


class EncodeFault(WireFault):
    """A value cannot cross. ``culprit`` is the object itself, ``why`` ends a sentence, ``hint`` says what to do."""

    def __init__(self, culprit: Any, why: str, hint: str = "") -> None:
        super().__init__(f"{why}; {hint}" if hint else why)
        self.culprit = culprit
        self.why = why
        self.hint = hint


class DecodeFault(WireFault):
    """A message holds something that is not accepted."""


class ReferenceGone(WireFault):
    """A reference to an object that is not here, or not here any more."""


class DeviceGone(DecodeFault):
    """Device memory that a message lends cannot be looked at, most likely since the process that has it ended."""


class CannotShare(WireFault):
    """A device, or this memory of it, cannot be shown to another process; the text says why."""


class Unproved(WireFault):
    """A tensor on a device is to be sent for the first time: whether its memory can be shown must be tried before."""

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid)
        self.uuid = uuid


class NoRoom(EncodeFault):
    """There is not enough memory for what is to be sent; told before any of it is taken."""

    def __init__(self, why: str) -> None:
        super().__init__(None, f"needs shared memory that is not there: {why}", "send less at once, or give the processes more memory")
