"""The worker's half of the handshake."""

from __future__ import annotations

import json
from typing import Any

from .wire import proof
from .wire.faults import LaneEnd
from .wire.frames import PAYLOAD_LIMIT, Frame
from .wire.kinds import Kind
from .wire.stream import FrameStream


def say_stage(stream: FrameStream, stage: str) -> None:
    """Give the host a sign of life while the worker is being born."""
    stream.send(Frame(Kind.STAGE, payload=json.dumps({"stage": stage}).encode()))


def join(stream: FrameStream, lane: int, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Prove who this is, have the host prove itself, and return what it says of itself; raises LaneEnd for a stranger."""
    key, nonce, generation = bytes.fromhex(document["auth_key"]), document["nonce"], document["generation"]
    asked = proof.challenge()
    stream.send(Frame(Kind.CHALLENGE, payload=asked))
    theirs = _expect(stream, Kind.CHALLENGE)
    stream.send(Frame(Kind.RESPONSE, payload=proof.answer(key, proof.WORKER, lane, nonce, generation, theirs)))
    response = _expect(stream, Kind.RESPONSE)
    if response[:1] != bytes([lane]) or not proof.proves(response, key, proof.HOST, nonce, generation, asked):
        raise LaneEnd("the other end of the lane is not this worker's host")
    told = {name: document[name] for name in ("nonce", "host_nonce", "env", "generation")}
    stream.send(Frame(Kind.HELLO, payload=proof.hello(**told, **more)))
    hello = proof.read_json(_expect(stream, Kind.HELLO))
    stream.payload_limit = PAYLOAD_LIMIT
    return hello


def _expect(stream: FrameStream, kind: Kind) -> bytes:
    frame = stream.receive()
    if frame.kind != kind:
        raise LaneEnd(f"the host sent kind {frame.kind} where {kind.name} was due")
    return bytes(frame.payload)
