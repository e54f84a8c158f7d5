"""The bodies of a backend's verbs on a worker's lanes; each works also while a call of that worker waits in a callback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_env.errors import DecodeRefused
from comfy_env.transport import canary as canaries
from comfy_env.transport.limits import Limit
from comfy_env.transport.session import session_of
from comfy_env.values import Canary, Lanes, Process, Proof, Released, Want
from comfy_env.worker.wire.kinds import Kind


def verify(process: Process, lanes: Lanes, canary: Canary, deadline: float | None = None) -> Proof:
    """Send the canary and return what came back."""
    return canaries.send(session_of(lanes, process), canary, deadline)


def release(process: Process, lanes: Lanes, want: Want, limit: Limit = None) -> Released:
    """Ask the worker to give memory back and return its measured receipt."""
    session = session_of(lanes, process)
    session.look_away()
    receipt = session.command(Kind.RELEASE, {"bytes": want.bytes, "which": want.which}, limit)
    session.trim()
    freed, held = receipt.get("freed"), receipt.get("held")
    if type(freed) is not int or type(held) is not int:
        raise DecodeRefused(f"the worker's receipt does not tell bytes: {receipt!r}")
    return Released(freed, held)


ASIDES = {"ping": Kind.SIDE_PING, "refresh_input_types": Kind.REFRESH, "fingerprint": Kind.FINGERPRINT, "validate": Kind.VALIDATE}
"""What the side lane answers, by name."""


def aside(process: Process, lanes: Lanes, question: str, facts: Mapping[str, Any], limit: Limit = None) -> Any:
    """Ask something on the side lane and return the answer's message."""
    return session_of(lanes, process).side(ASIDES[question], facts, limit)


def ping(process: Process, lanes: Lanes, deadline: float | None = None) -> None:
    """Return once the worker answered on its main lane."""
    session_of(lanes, process).command(Kind.PING, {}, deadline)
