"""Serves the side lane from a daemon thread: pings, interrupts, and questions about packs that are loaded already.

It never imports a module and never writes the main lane. A pong from here says that the process breathes, nothing more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import known
from .answers import encoded
from .interrupts import Interrupts
from .raised import text_of
from .wire.faults import DecodeFault, EncodeFault, LaneEnd, ReferenceGone
from .wire.frames import Frame
from .wire.kinds import Kind
from .wire.payload import Codec
from .wire.stream import FrameStream


class SideLane:
    """The side lane's worker end; ``serve`` returns when the host is gone."""

    def __init__(self, stream: FrameStream, codec: Codec, interrupts: Interrupts, generation: int) -> None:
        self._stream = stream
        self._codec = codec
        self._interrupts = interrupts
        self._generation = generation
        self._handlers: dict[int, Callable[[Any], Any]] = {
            Kind.SIDE_PING: lambda message: {},
            Kind.INTERRUPT: lambda message: self._interrupts.interrupt(message["request"]),
            Kind.REFRESH: lambda message: _asked("inputs", message) or _input_types(message),
            Kind.FINGERPRINT: lambda message: _asked("fingerprint", message) or _fingerprint(message),
            Kind.VALIDATE: lambda message: _asked("validate", message) or {"absent": True},
        }

    def serve(self) -> None:
        try:
            while True:
                self._serve(self._stream.receive())
        except LaneEnd:
            self._stream.close()

    def _serve(self, frame: Frame) -> None:
        answer = self._answer(frame)
        if frame.kind == Kind.INTERRUPT:
            return
        kind = Kind.SIDE_PONG if frame.kind == Kind.SIDE_PING else Kind.SIDE_REPLY
        try:
            payload, buffers = encoded(self._codec, answer)
        except EncodeFault as fault:
            payload, buffers = self._codec.encode({"error": str(fault)})
        self._stream.send(Frame(kind, frame.request, self._generation, payload, buffers))

    def _answer(self, frame: Frame) -> Any:
        handler = self._handlers.get(frame.kind)
        if handler is None:
            return {"error": f"the side lane does not serve frame kind {frame.kind}"}
        try:
            return handler(self._codec.decode(frame.payload, frame.buffers) if len(frame.payload) else {})
        except (DecodeFault, ReferenceGone) as fault:
            return {"error": str(fault)}
        except Exception as error:  # a pack's INPUT_TYPES or IS_CHANGED can raise anything
            return {"error": f"{type(error).__name__}: {text_of(error)}"}


def _asked(question: str, message: dict[str, Any]) -> Any:
    """Return what the pack's own answerer says, None if nobody registered one."""
    ask = known.packs.find(message["pack"])
    return None if ask is None else ask(question, message["class"], message.get("kwargs", {}))


def _loaded(message: dict[str, Any]) -> Any:
    """Return a node class of a pack that was imported, None if it was not."""
    pack = message["pack"]
    module = sys.modules.get(pack) or sys.modules.get(pack.replace(".", "_x_"))   # packs of a folder have their path as name
    return getattr(module, "NODE_CLASS_MAPPINGS", {}).get(message["class"])


def _input_types(message: dict[str, Any]) -> dict[str, Any]:
    cls = _loaded(message)
    return {"absent": True} if cls is None else {"value": cls.INPUT_TYPES()}


def _fingerprint(message: dict[str, Any]) -> dict[str, Any]:
    cls = _loaded(message)
    if cls is None:
        return {"absent": True}
    ask = getattr(cls, "fingerprint_inputs", None) or getattr(cls, "IS_CHANGED", None)
    return {"value": None if ask is None else ask(**message.get("kwargs", {}))}
