"""Objects that stayed in one worker and are wanted in another: carried across as a sealed blob that the host never opens.

The worker that has the object writes it, the one that wants it reads it; both run packs' code anyway. Where the second
one cannot import the class, it refuses, and the refusal names the class and both environments.
"""

from __future__ import annotations

import pickle
import weakref
from typing import Any, Protocol

from comfy_env.errors import ComfyEnvError
from comfy_env.values import RemoteRef
from comfy_env.worker.wire.faults import EncodeFault
from comfy_env.worker.wire.kinds import Kind

PATIENCE = 30.0
"""Seconds that the worker which has the object may be busy with a call of its own."""


class Asked(Protocol):
    """What fetching needs of a session."""

    def ask(self, kind: Kind, message: dict[str, Any], seconds: float) -> Any: ...


class Relays:
    """The conversations by environment and generation, for as long as somebody else holds them."""

    def __init__(self) -> None:
        self._sessions: weakref.WeakValueDictionary[tuple[str, int], Any] = weakref.WeakValueDictionary()

    def know(self, env: str, generation: int, session: Asked) -> None:
        self._sessions[env, generation] = session

    def fetch(self, ref: RemoteRef, wanted_in: str) -> pickle.PickleBuffer:
        """Return the object of a reference as its worker wrote it; raises EncodeFault."""
        session = self._sessions.get((ref.env, ref.generation))
        if session is None:
            raise _stays(ref, wanted_in, f"generation {ref.generation} of env {ref.env} is gone")
        try:
            answer = session.ask(Kind.FETCH, {"id": ref.id}, PATIENCE)
        except (ComfyEnvError, TimeoutError) as error:
            raise _stays(ref, wanted_in, str(error)) from error
        if "blob" not in answer:
            raise _stays(ref, wanted_in, str(answer.get("error", "")))
        return pickle.PickleBuffer(answer["blob"])


def _stays(ref: RemoteRef, wanted_in: str, why: str) -> EncodeFault:
    told = f"is a {ref.type_name} that stayed in the worker of env {ref.env} and cannot go to env {wanted_in}: {why}"
    return EncodeFault(ref, told, "give both nodes the same environment, or return plain values")


relays = Relays()
