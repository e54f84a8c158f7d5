"""The two ends of a handover's pipe: one JSON object per line, each way, with deadlines.

A successor knows its predecessor by descriptor and nonce, both in its environment; the nonce alone proves nothing, and a
variable that somebody else inherited leads to a descriptor that does not answer with it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from comfy_env.errors import ComfyEnvError

HANDOVER = "COMFY_ENV_ORCH_HANDOVER"
GENERATION = "COMFY_ENV_ORCH_GENERATION"
LONGEST = 65_536

HELLO, LISTENER, LISTENING, COMMIT, SERVING, CONFIRMED, GOODBYE, FAILED = (
    "hello",
    "listener",
    "listening",
    "commit",
    "serving",
    "confirmed",
    "goodbye",
    "failed",
)


class PipeLost(ComfyEnvError):
    """The other end is gone, or said something else than it should."""


def packed(kind: str, facts: Mapping[str, Any]) -> bytes:
    return json.dumps({"kind": kind, **facts}).encode() + b"\n"


def unpacked(line: bytes) -> dict[str, Any]:
    """Return the message of a line; raises PipeLost if it is none."""
    try:
        message = json.loads(line)
    except ValueError as error:
        raise PipeLost(f"{line[:80]!r} is no message of a handover") from error
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise PipeLost(f"{line[:80]!r} is no message of a handover")
    return message


class Heir:
    """The successor's end. Blocking: it is used before the service's loop runs, and for single short lines afterwards."""

    def __init__(self, end: socket.socket, nonce: str, generation: int) -> None:
        self._end = end
        self._rest = b""
        self.nonce = nonce
        self.generation = generation

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Heir | None:
        """Return the end that these variables lead to, None where this process is nobody's successor."""
        fd, _, nonce = environ.get(HANDOVER, "").partition(":")
        generation = environ.get(GENERATION, "")
        if not fd.isdigit() or not generation.isdigit() or not _is_socket(int(fd)):
            return None
        os.set_inheritable(int(fd), False)
        return cls(socket.socket(fileno=int(fd)), nonce, int(generation))

    def say(self, kind: str, **facts: Any) -> bool:
        """Send a line; False where the predecessor is gone."""
        try:
            self._end.settimeout(5.0)
            self._end.sendall(packed(kind, {"nonce": self.nonce, **facts}))
        except OSError:  # it ended: what that means is the caller's to judge
            return False
        return True

    def hear(self, kind: str, seconds: float | None) -> dict[str, Any]:
        """Wait for the next line, which must be of this kind and carry the nonce; raises PipeLost, TimeoutError."""
        until = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._rest:
            self._end.settimeout(None if until is None else max(0.001, until - time.monotonic()))
            more = self._received()
            if not more or len(self._rest) > LONGEST:
                raise PipeLost("the predecessor is gone")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        message = unpacked(line)
        if message["kind"] != kind or message.get("nonce") != self.nonce:
            raise PipeLost(f"the predecessor said {message['kind']!r} instead of {kind!r}")
        return message

    def _received(self) -> bytes:
        try:
            return self._end.recv(4096)
        except ConnectionError:  # as good as an end
            return b""

    def close(self) -> None:
        self._end.close()


def _is_socket(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            return found.family == socket.AF_UNIX
    except OSError:  # closed, or no socket: the variable was inherited by somebody it was not meant for
        return False
