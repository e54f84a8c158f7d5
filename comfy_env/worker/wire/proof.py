"""The mutual proof of identity: what each end says, and how the other checks it.

Both ends draw a challenge per connection and answer the other's with an HMAC over who answers, on which lane, as which
worker and generation. A recorded answer is worthless on another connection, a reflected one names the wrong role.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
from typing import Any, Union

from .faults import DecodeFault

PROTOCOL = 1
MAIN, SIDE = 0, 1
HOST, WORKER = b"host", b"worker"
CHALLENGE_SIZE = 32
ARENA = "arena"
"""The feature of an end that can pass descriptors along its main lane and look at shared memory."""
DEVICES = "devices"
"""The feature of an end with an arena that can also lend memory of devices."""
PAYLOAD_LIMIT = 8192
"""Nothing said before both ends proved themselves is longer."""


def challenge() -> bytes:
    return os.urandom(CHALLENGE_SIZE)


def answer(key: bytes, role: bytes, lane: int, nonce: str, generation: int, asked: bytes) -> bytes:
    """Return the answer to the other end's challenge: the lane's number and the HMAC."""
    told = b"\0".join([role, b"%d" % lane, nonce.encode(), b"%d" % generation, bytes(asked)])
    return bytes([lane]) + hmac.digest(key, told, "sha256")


def proves(payload: bytes, key: bytes, role: bytes, nonce: str, generation: int, asked: bytes) -> bool:
    """Tell whether a payload is the right answer on either lane."""
    if len(payload) != 33 or payload[0] not in (MAIN, SIDE):
        return False
    return hmac.compare_digest(bytes(payload), answer(key, role, payload[0], nonce, generation, asked))


def hello(**more: Any) -> bytes:
    """Return what this end says of itself."""
    facts = {
        "protocol": PROTOCOL,
        "features": [ARENA, DEVICES],
        "cache_tag": sys.implementation.cache_tag,
        "python": ".".join(map(str, sys.version_info[:3])),
        "pid": os.getpid(),
        "executable": sys.executable or "",
    }
    return json.dumps({**facts, **more}).encode()


def read_json(payload: Union[bytes, bytearray, memoryview]) -> dict[str, Any]:
    """Return a payload that must be a JSON object."""
    try:
        told = json.loads(bytes(payload))
    except (ValueError, RecursionError) as error:
        raise DecodeFault(f"what should be JSON is not ({error})") from error
    if not isinstance(told, dict):
        raise DecodeFault("what should be a JSON object is something else")
    return told
