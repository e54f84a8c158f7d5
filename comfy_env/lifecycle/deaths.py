"""Why a worker ends and how a call ends: two closed lists.

An `Outcome` is data, not an exception: the driver builds a fresh exception for each asker from it, so no two threads
ever raise the same object.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from comfy_env import errors
from comfy_env.values import ExitStatus


class Reason(enum.Enum):
    """Why a worker is ended."""

    CRASHED = "its process ended by itself"
    LANE_LOST = "its lane was lost"
    SPAWN_LATE = "the backend's spawn took longer than its limit"
    BIRTH_SILENT = "no sign of life for the birth limit"
    REFUSED = "it did not prove itself"
    VERIFY_LATE = "the canary took longer than its limit"
    BIRTH_FAILED = "its birth failed"
    CALL_SILENT = "a call was silent past its limit"
    INTERRUPT_GRACE = "an interrupted call did not end within the grace"
    PING_FAILED = "a health check failed"
    RELEASE_LATE = "a release took longer than its limit"
    REAPED = "it was idle and held nothing"
    STALE_SOURCE = "the pack's sources changed"
    STALE_ENV = "its environment changed"
    WORN = "it served as many calls, or took as much memory, as its environment allows one worker"
    ASKED = "somebody asked for it"
    SHUTDOWN = "the pool was closed"
    UNWANTED = "nobody waited for it any more"


class Kind(enum.Enum):
    """How a call ends; the value names the class of error its asker gets, nothing for a result."""

    RETURNED = ""
    RAISED = "NodeRaised"
    CRASHED = "WorkerCrashed"
    SILENT = "CallSilent"
    INTERRUPTED = "Interrupted"
    REFERENCE_LOST = "ReferenceLost"
    WITHDRAWN = "CallWithdrawn"
    INTERPRETER_MISSING = "InterpreterMissing"
    DIED_BEFORE_JOINING = "DiedBeforeJoining"
    BIRTH_SILENT = "BirthSilent"
    REFUSED = "TransportRefused"
    ENV_NOT_BUILT = "EnvNotBuilt"
    ENV_MOVED = "EnvMoved"
    SPAWN_FAILED = "SpawnFailed"
    BACKEND_BROKE = "BackendError"
    PARKED = "Parked"
    WEDGED = "Wedged"
    ENCODE_REFUSED = "EncodeRefused"
    DECODE_REFUSED = "DecodeRefused"
    CLOSED = "PoolClosed"

    @property
    def error(self) -> type[errors.ComfyEnvError]:
        """The class of error that tells this ending; only for kinds that are errors."""
        return getattr(errors, self.value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended. ``message`` is for people, ``status`` the process's, ``stack`` its last Python stack."""

    kind: Kind
    message: str = ""
    status: ExitStatus | None = None
    stack: str = ""
    hint: str = ""


COUNTED = frozenset({
    Reason.CRASHED, Reason.LANE_LOST, Reason.SPAWN_LATE, Reason.BIRTH_SILENT, Reason.REFUSED, Reason.VERIFY_LATE,
    Reason.BIRTH_FAILED, Reason.CALL_SILENT, Reason.PING_FAILED, Reason.RELEASE_LATE,
})
"""The deaths that nobody wanted: enough of them in a short time park an environment."""

UNCOUNTED = frozenset({Kind.INTERPRETER_MISSING, Kind.ENV_NOT_BUILT, Kind.ENV_MOVED})
"""Failed births that say what is wrong before anything ran; waiting would not mend them."""
