"""Serves the main lane: one frame after the other, on one thread."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from .answers import encoded
from .calls import Calls
from .devices import Answers
from .heavy import Seen
from .memory import Keepers
from .raised import text_of
from .resident import Resident
from .wire.devices import ASK, Devices
from .wire.faults import CannotShare, DecodeFault, EncodeFault, ReferenceGone, Unproved
from .wire.frames import Frame
from .wire.kinds import Kind
from .wire.payload import Codec
from .wire.stream import FrameStream

_LENDING = frozenset({Kind.REPLY, Kind.CALLBACK, Kind.DEVICE_BACK})
"""Frames whose device tensors are lent, not sent as bytes."""


class Tools(NamedTuple):
    """What a loop works with."""

    stream: FrameStream
    codec: Codec
    resident: Resident
    keepers: Keepers
    generation: int
    devices: Optional[Devices] = None


class Loop:
    """The main lane's worker end. ``serve`` returns at GOODBYE and raises LaneEnd when the host is gone."""

    def __init__(self, tools: Tools, calls: Calls) -> None:
        self._stream = tools.stream
        self._codec = tools.codec
        self._tools = tools
        self._calls = calls
        self._open = True
        self._busy = False
        self._answer: Optional[dict[str, Any]] = None
        self._heavy = Seen()
        self._devices = Answers(tools.devices)
        self._handlers: dict[int, Callable[[int, Any], None]] = {
            Kind.CALL: self._call,
            Kind.PING: self._ping,
            Kind.CANARY: self._canary,
            Kind.RELEASE: self._release,
            Kind.DROP: self._drop,
            Kind.FETCH: self._fetch,
            Kind.DEVICE: self._device,
            Kind.GOODBYE: self._goodbye,
            Kind.ANSWER: self._take_answer,
        }

    @property
    def generation(self) -> int:
        """The worker's place among those of its environment."""
        return self._tools.generation

    def serve(self) -> None:
        while self._open:
            self._serve_next()

    def ask(self, request: int, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the host while a call runs, and serve whatever else it sends until it answers."""
        self._send(Kind.CALLBACK, request, message)
        self._answer = None
        while self._answer is None:
            self._serve_next()
        answer, self._answer = self._answer, None
        return answer

    def tell(self, request: int, message: dict[str, Any]) -> None:
        """Report progress of a call; any thread may. A picture in it is not worth a device's proof."""
        self._send(Kind.PROGRESS, request, message)

    def _serve_next(self) -> None:
        handler, request, message = self._read(self._stream.receive())
        handler(request, message)

    def _read(self, frame: Frame) -> tuple[Callable[[int, Any], None], int, Any]:
        """Return what a frame wants done. The frame itself is let go before that is: it holds the arguments' bytes."""
        handler = self._handlers.get(frame.kind)
        if handler is None:
            return self._decline("decode"), frame.request, f"no worker of this version knows frame kind {frame.kind}"
        try:
            return handler, frame.request, self._codec.decode(frame.payload, frame.buffers) if len(frame.payload) else {}
        except ReferenceGone as fault:
            return self._unreadable(frame.kind, "reference"), frame.request, str(fault)
        except DecodeFault as fault:
            return self._unreadable(frame.kind, "decode"), frame.request, str(fault)

    def _unreadable(self, kind: int, error: str) -> Callable[[int, str], None]:
        """Return what to do with a message that cannot be read: an answer is its callback's failure, not its call's end."""
        if kind != Kind.ANSWER:
            return self._decline(error)
        told = "the callback's answer cannot be used here: "
        return lambda request, text: self._take_answer(request, {"error": {"type": ["builtins", "TypeError"], "text": told + text}})

    def _decline(self, error: str) -> Callable[[int, str], None]:
        return lambda request, text: self._refuse(request, error, text)

    # ---- one method per kind of frame

    def _call(self, request: int, message: dict[str, Any]) -> None:
        if self._busy:
            self._refuse(request, "busy", "a call came while another one runs")
            return
        self._busy = True
        try:
            kind, answer = self._calls.run(request, message)
        finally:
            self._busy = False
        self._answer_call(kind, request, answer)

    def _answer_call(self, kind: Kind, request: int, answer: dict[str, Any]) -> None:
        answer["held"] = self._tools.keepers.held()
        imported = self._heavy.news()
        if imported:
            answer["imported"] = imported
        try:
            self._send(kind, request, answer)
        except EncodeFault as fault:
            self._refuse(request, "encode", str(fault))

    def _ping(self, request: int, message: dict[str, Any]) -> None:
        self._send(Kind.PONG, request, {"held": self._tools.keepers.held()})

    def _canary(self, request: int, message: dict[str, Any]) -> None:
        content = message["content"]
        digest = hashlib.sha256(content).hexdigest()
        versions = {"python": ".".join(map(str, sys.version_info[:3]))}
        self._send(Kind.CANARY_BACK, request, {"digest": digest, "content": pickle.PickleBuffer(content), "versions": versions})

    def _release(self, request: int, message: dict[str, Any]) -> None:
        freed, held = self._tools.keepers.release(message.get("bytes"), str(message.get("which", "")))
        self._stream.trim()
        if self._tools.devices is not None:
            self._tools.devices.trim()
        self._send(Kind.RECEIPT, request, {"freed": freed, "held": held})

    def _drop(self, request: int, message: dict[str, Any]) -> None:
        self._tools.resident.drop(message.get("ids", ()))

    def _fetch(self, request: int, message: dict[str, Any]) -> None:
        """Write an object for another worker, which has its own copy from then on."""
        answer: dict[str, Any]
        try:
            answer = {"blob": pickle.PickleBuffer(pickle.dumps(self._tools.resident.get(message["id"]), 5))}
        except Exception as error:  # writing an object runs whatever its class does for that
            answer = {"error": f"it cannot be written ({type(error).__name__}: {text_of(error)})"}
        self._send(Kind.FETCHED, request, answer)

    def _device(self, request: int, message: dict[str, Any]) -> None:
        try:
            self._send(Kind.DEVICE_BACK, request, self._devices.answer(message))
        except CannotShare as fault:
            self._send(Kind.DEVICE_BACK, request, {"why": str(fault)})

    def _goodbye(self, request: int, message: dict[str, Any]) -> None:
        self._open = False

    def _take_answer(self, request: int, message: dict[str, Any]) -> None:
        self._answer = message

    # ---- sending

    def _send(self, kind: Kind, request: int, message: dict[str, Any]) -> None:
        payload, buffers = self._encoded(kind, request, message)
        self._stream.send(Frame(kind, request, self._tools.generation, payload, buffers))

    def _encoded(self, kind: Kind, request: int, message: dict[str, Any]) -> Any:
        """Return a message as it travels; the host is asked to prove a device from which a tensor leaves for the first time."""
        while kind in _LENDING:
            try:
                return encoded(self._codec, message)
            except Unproved as unproved:
                self.ask(request, {"name": ASK, "args": (unproved.uuid,), "kwargs": {}})
                self._devices.conclude(unproved.uuid)
        return encoded(self._codec.plain, message)

    def _refuse(self, request: int, error: str, text: str) -> None:
        self._send(Kind.REFUSED, request, {"error": error, "text": text})
