"""The host's end of sharing device memory: it proves each device in both directions before anything is lent.

Contents are compared, never flags: broken sharing delivers zeros without an error. The verdict is told to the worker
too, so that both ends know which way a tensor goes. What the host takes it copies at once, so that no worker's death
reaches memory that the host looks at.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from comfy_env.errors import DecodeRefused, EncodeRefused, LaneBusy, ReferenceLost
from comfy_env.transport.tensors import load_torch
from comfy_env.worker.wire import proof
from comfy_env.worker.wire.cuda import Cards
from comfy_env.worker.wire.devices import Card, Devices
from comfy_env.worker.wire.devices import digest as digest_of
from comfy_env.worker.wire.faults import CannotShare
from comfy_env.worker.wire.kinds import Kind

log = logging.getLogger(__name__)
PATIENCE = 120.0
"""Seconds for one step of a proof: the worker may have to import torch and open its device."""

_SIZE = 1 << 20
_REFUSED = (DecodeRefused, EncodeRefused, ReferenceLost, LaneBusy, TimeoutError, RuntimeError)   # the last: what torch says of a device


cards = Cards(load_torch)


class HostDevices(Devices):
    """One worker's lane, as the host deals with device memory on it.

    ``policy``: 0 shares nothing, 1 has the worker copy its inputs on the device, 2 has it look at them where they lie.
    ``demotions`` is what the pool has not heard of yet.
    """

    def __init__(self, ask: Callable[[Kind, Mapping[str, Any], float], Any], hello: Mapping[str, Any]) -> None:
        super().__init__(cards.find, wary=True, say=lambda text: log.warning("[%s] %s", hello.get("env"), text))
        self.demotions: deque[str] = deque()
        self.policy = 1
        self._asked = ask
        self._hello = hello
        self._proving = threading.RLock()

    def prove(self, uuid: str) -> None:
        """Try a device in both directions and tell both ends whether its memory is shared from now on.

        Raises what a lost lane raises; anything else is a verdict.
        """
        with self._proving:
            if uuid in self.verdicts:
                return
            try:
                why = self._differs(uuid) or self._tried(uuid)
            except CannotShare as fault:
                why = str(fault)
            except _REFUSED as error:
                why = getattr(error, "message", str(error))
            self._judge(uuid, why)

    def _judge(self, uuid: str, why: str) -> None:
        self.verdicts[uuid] = why
        if why:
            self.demotions.append(f"device {uuid}: {why}")
        try:
            self._ask({"verdicts": {uuid: why}})
        except _REFUSED as error:
            log.warning("[%s] the worker did not take the verdict on device %s: %s", self._hello.get("env"), uuid, error)

    def _ask(self, message: dict[str, Any]) -> Any:
        return self._asked(Kind.DEVICE, message, PATIENCE)

    @property
    def hindrance(self) -> str:
        """Why memory of no device can be shared over this lane, '' where that is for a device's proof to say."""
        if proof.DEVICES not in self._hello.get("features", ()):
            return "the worker's lane shares no memory"
        if self._hello.get("pid") == os.getpid():
            return "both ends are one process, which cannot open its own memory a second time"
        return ""

    def _differs(self, uuid: str) -> str:
        """Return why the two ends do not fit each other, '' if they do."""
        why = self.hindrance if self.policy else "sharing of device memory is switched off (COMFY_ENV_GPU)"
        if why:
            return why
        mine, theirs = self.card, self._ask({"facts": True})
        if "facts" not in theirs:
            return f"the worker says: {theirs.get('why', 'nothing')}"
        if uuid not in theirs["uuids"] or uuid not in mine.uuids():
            return f"this process sees the devices {', '.join(mine.uuids())}, the worker {', '.join(theirs['uuids']) or 'none'}"
        return "; ".join(f"{name} is {value} here and {theirs['facts'].get(name)} in the worker"
                         for name, value in mine.facts().items() if theirs["facts"].get(name) != value)

    def _tried(self, uuid: str) -> str:
        """Return what is wrong with content that was sent to the worker's side of a device and came back from there."""
        card, index = self.card, self.find(uuid)
        canary, digest = _canary(card, index)
        self.verdicts[uuid], self.strict = "", True   # for this message; the verdict follows
        try:
            answer = self._ask({"uuid": uuid, "canary": canary, "in_place": self.policy > 1})
            if "digest" not in answer:
                return f"the worker says: {answer.get('why', 'nothing')}"
            there, back = answer["digest"], digest_of(answer["echo"])
            return _wrong("canary on the device", there, digest) or _wrong("canary's echo from it", back, digest)
        finally:
            del self.verdicts[uuid]
            self.strict = False


def _canary(card: Card, index: int) -> tuple[list[Any], str]:
    """Return content on a device, some of it beginning within an allocation, and its digest."""
    torch = load_torch()
    plain = torch.frombuffer(bytearray(os.urandom(_SIZE)), dtype=torch.uint8)
    whole = card.place(plain, index)
    parts = [(0, _SIZE), (4096, _SIZE // 2), (_SIZE // 2 + 1, _SIZE // 4)]
    return [whole.narrow(0, *part) for part in parts], digest_of([plain.narrow(0, *part) for part in parts])


def _wrong(what: str, came: Any, due: str) -> str:
    return "" if came == due else f"the {what} came back changed"
