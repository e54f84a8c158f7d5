"""The worker's end of sharing device memory: its device, found when first needed, and its answers to the host's proof."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Optional

from . import tensors
from .raised import text_of
from .wire.cuda import Cards
from .wire.devices import Devices, digest
from .wire.faults import CannotShare

log = logging.getLogger("comfy_env")
cards = Cards(lambda: tensors.load("torch"))


def open_devices() -> Devices:
    """Return the worker's half of a lane's device memory."""
    return Devices(cards.find, settles=True, say=log.warning)


class Answers:
    """What a worker says to the steps of the host's proof, each a message of its own."""

    def __init__(self, devices: Optional[Devices]) -> None:
        self._devices = devices
        self._steps: dict[str, Callable[[Devices, dict[str, Any]], dict[str, Any]]] = {
            "facts": _facts, "canary": _canary, "verdicts": _verdicts,
        }

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._devices is None:
            return {"why": "the worker's lane shares no memory"}
        step = next((name for name in self._steps if name in message), "")
        try:
            return self._steps[step](self._devices, message) if step else {}
        except (CannotShare, RuntimeError) as error:   # what torch says of a device
            return {"why": text_of(error)}

    def conclude(self, uuid: str) -> None:
        """Take the other way for a device that the host was asked to prove and told nothing of."""
        if self._devices is not None:
            self._devices.verdicts.setdefault(uuid, "the host did not prove it")


def _facts(devices: Devices, message: dict[str, Any]) -> dict[str, Any]:
    card = devices.card
    return {"facts": card.facts(), "uuids": card.uuids()}


def _canary(devices: Devices, message: dict[str, Any]) -> dict[str, Any]:
    """Tell what came, and send the same content from memory of this process's own."""
    uuid, came = message["uuid"], message["canary"]
    index = devices.find(uuid)
    devices.verdicts[uuid], devices.strict = "", True   # for the echo; the verdict follows
    devices.in_place = message.get("in_place") is True
    return {"digest": digest(came), "echo": [devices.card.place(tensor.cpu(), index) for tensor in came]}


def _verdicts(devices: Devices, message: dict[str, Any]) -> dict[str, Any]:
    devices.verdicts.update(message["verdicts"])
    devices.strict = False
    return {}
