"""What the driver must do. Each effect names the generation it is for and the events that may answer it."""

from __future__ import annotations

from dataclasses import dataclass

from comfy_env.lifecycle.deaths import Outcome, Reason
from comfy_env.lifecycle.events import Ticket
from comfy_env.values import Want


@dataclass(frozen=True, slots=True)
class Effect:
    generation: int


@dataclass(frozen=True, slots=True)
class Spawn(Effect):
    """Start the process (hook spawn). Answers: Spawned, SpawnFailed."""


@dataclass(frozen=True, slots=True)
class OpenLanes(Effect):
    """Join the lanes (hook transport). Answers: SignOfLife*, then LanesOpen or LanesFailed."""


@dataclass(frozen=True, slots=True)
class Prove(Effect):
    """Send the canary (hook verify). Answers: Proved, ProofFailed."""


@dataclass(frozen=True, slots=True)
class Dispatch(Effect):
    """Offer the lane to a ticket's asker. Answers: Accepted then CallEnded, or CallWithdrawn."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Ping(Effect):
    """Ask for a pong on the main lane. Answers: Ponged, PingFailed."""


@dataclass(frozen=True, slots=True)
class Release(Effect):
    """Ask the worker to give back (hook release). Answers: Receipt, ReleaseFailed."""

    want: Want


@dataclass(frozen=True, slots=True)
class SendInterrupt(Effect):
    """Set the interrupt flag of one call over the side lane. No answer."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Goodbye(Effect):
    """Send the shutdown frame and wait until the process ended or the lived time `deadline`. Answers: ProcessExited (by the watcher)."""

    deadline: float


@dataclass(frozen=True, slots=True)
class AskStack(Effect):
    """Ask for the Python stack (works with the GIL held). Answers: StackRead."""


@dataclass(frozen=True, slots=True)
class Kill(Effect):
    """End the tree: hook kill, then the core's own kill. Answers: TreeGone, WontDie."""

    reason: Reason
    replaced: bool  # whether a next generation will follow


@dataclass(frozen=True, slots=True)
class DropZygote(Effect):
    """End the environment's zygote. No answer."""


@dataclass(frozen=True, slots=True)
class Quarantine(Effect):
    """Deregister the stand-ins but keep them alive, answering as offloaded. No answer."""


@dataclass(frozen=True, slots=True)
class DropQuarantine(Effect):
    """Let the quarantined stand-ins go. No answer."""


@dataclass(frozen=True, slots=True)
class Settle(Effect):
    """Answer a ticket's asker; every ticket exactly once. No answer."""

    ticket: Ticket
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Note(Effect):
    """Write a line to the log. No answer."""

    line: str
    level: str = "info"
