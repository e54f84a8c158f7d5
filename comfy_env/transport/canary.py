"""The canary: content that must come back as it was sent, through the very path that calls use."""

from __future__ import annotations

import hashlib
import pickle
import random
from typing import Any

from comfy_env.errors import DecodeRefused
from comfy_env.transport.session import Session
from comfy_env.values import Canary, Proof
from comfy_env.worker.wire.kinds import Kind

_SIZE = 96 * 1024   # travels as a buffer of its own, like an array's bytes


def make(seed: int) -> Canary:
    """Return a canary whose content follows from the seed and is unlike any other's."""
    content = random.Random(seed).randbytes(_SIZE)
    return Canary(content, hashlib.sha256(content).hexdigest())


def send(session: Session, canary: Canary, deadline: float | None = None) -> Proof:
    """Send a canary over a session and return what came back."""
    answer = session.command(Kind.CANARY, {"content": pickle.PickleBuffer(canary.content)}, deadline)
    try:
        versions = tuple((str(name), str(value)) for name, value in answer.get("versions", {}).items())
        return Proof(cpu=answer.get("digest"), echo=hashlib.sha256(answer["content"]).hexdigest(), versions=versions)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DecodeRefused(f"the worker's answer to the canary has another shape than it must ({error!r})", **_facts(session)) from error


def _facts(session: Session) -> dict[str, Any]:
    return {"env": session.codec.env, "generation": session.codec.generation}
