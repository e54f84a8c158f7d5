"""What can happen to an environment. Events about a process carry the generation they speak of.

`now`, passed to `step`, is lived time in seconds: it stands still while the machine is suspended.
"""

from __future__ import annotations

from dataclasses import dataclass

from comfy_env.lifecycle.deaths import Outcome, Reason
from comfy_env.values import ExitStatus, Proof, Want

Ticket = int
"""One call's number in its environment; never reused."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that concerns the environment, whatever process serves it."""


@dataclass(frozen=True, slots=True)
class News(Event):
    """Something about one process; news of an older generation changes nothing and asks for nothing."""

    generation: int


# ---- asked from outside

@dataclass(frozen=True, slots=True)
class CallWanted(Event):
    ticket: Ticket
    silence: float | None = None  # seconds; None: the environment's own limit, 0: no limit
    seen: int = 0  # the generation whose process its asker has just seen alive: it takes that one's free lane without an offer


@dataclass(frozen=True, slots=True)
class CallWithdrawn(Event):
    ticket: Ticket  # its asker left before accepting it


@dataclass(frozen=True, slots=True)
class InterruptWanted(Event):
    ticket: Ticket | None = None  # None: whatever runs now


@dataclass(frozen=True, slots=True)
class ReleaseWanted(Event):
    want: Want


@dataclass(frozen=True, slots=True)
class KillWanted(Event):
    reason: Reason  # ASKED by a person, EVICTED by a manager, …


@dataclass(frozen=True, slots=True)
class ShutdownWanted(Event):
    due: float | None = None  # lived time of the deadline all environments share; None: the environment's own


@dataclass(frozen=True, slots=True)
class Tick(Event):
    pass


@dataclass(frozen=True, slots=True)
class Unpark(Event):
    pass


@dataclass(frozen=True, slots=True)
class PromptChanged(Event):
    prompt: str


@dataclass(frozen=True, slots=True)
class CardTight(Event):
    device: str
    yes: bool


@dataclass(frozen=True, slots=True)
class SourceChanged(Event):
    fault: str = ""  # what a check of the sources found wrong with them as they are now
    settled: bool = False  # one more look found nothing newer


@dataclass(frozen=True, slots=True)
class EnvChanged(Event):
    pass


@dataclass(frozen=True, slots=True)
class ZygoteUp(Event):
    pass  # the environment's zygote serves


@dataclass(frozen=True, slots=True)
class ZygoteLost(Event):
    pass


@dataclass(frozen=True, slots=True)
class StandInsRegistered(Event):
    pass  # the host registered stand-ins anew: the quarantine may be dropped


# ---- news of one process

@dataclass(frozen=True, slots=True)
class Spawned(News):
    pid: int | None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class SpawnFailed(News):
    why: Outcome  # kind SPAWN_FAILED, INTERPRETER_MISSING, ENV_NOT_BUILT, ENV_MOVED, BACKEND_BROKE


@dataclass(frozen=True, slots=True)
class SignOfLife(News):
    stage: str


@dataclass(frozen=True, slots=True)
class LanesOpen(News):
    pass


@dataclass(frozen=True, slots=True)
class LanesFailed(News):
    why: Outcome


@dataclass(frozen=True, slots=True)
class Proved(News):
    proof: Proof
    expected: str  # the canary's digest


@dataclass(frozen=True, slots=True)
class Demoted(News):
    why: str  # what a device's proof found, when a tensor on it was to be sent for the first time


@dataclass(frozen=True, slots=True)
class ProofFailed(News):
    why: Outcome


@dataclass(frozen=True, slots=True)
class Accepted(News):
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class CallAlive(News):
    ticket: Ticket
    asking: bool = False  # the worker waits for the host to answer a callback: until it is alive again, silence is the host's


@dataclass(frozen=True, slots=True)
class CallEnded(News):
    ticket: Ticket
    outcome: Outcome  # RETURNED, RAISED, ENCODE_REFUSED, INTERRUPTED, … : the lane is in order


@dataclass(frozen=True, slots=True)
class Ponged(News):
    pass


@dataclass(frozen=True, slots=True)
class PingFailed(News):
    why: str


@dataclass(frozen=True, slots=True)
class HeldGrew(News):
    held: int  # bytes the worker is believed to hold now


@dataclass(frozen=True, slots=True)
class Receipt(News):
    freed: int
    held: int


@dataclass(frozen=True, slots=True)
class ReleaseFailed(News):
    why: str


@dataclass(frozen=True, slots=True)
class ProcessExited(News):
    status: ExitStatus


@dataclass(frozen=True, slots=True)
class CrashTold(News):
    status: ExitStatus  # how the process will have ended: its end has begun, its memory may still be there
    stack: str = ""


@dataclass(frozen=True, slots=True)
class LaneLost(News):
    why: str = ""


@dataclass(frozen=True, slots=True)
class StackRead(News):
    text: str


@dataclass(frozen=True, slots=True)
class TreeGone(News):
    status: ExitStatus


@dataclass(frozen=True, slots=True)
class WontDie(News):
    note: str = ""


@dataclass(frozen=True, slots=True)
class StandInsChanged(News):
    count: int


@dataclass(frozen=True, slots=True)
class Outgrown(News):
    resident: int  # bytes of its process, more than its environment allows one worker


@dataclass(frozen=True, slots=True)
class HostHoldsChanged(News):
    tensors: int
    references: int
