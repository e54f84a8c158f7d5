"""What the restart machine asks for. Pure values; `ANSWERS` says which events answer each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.target import Target


@dataclass(frozen=True)
class Effect:
    """Something to do."""


@dataclass(frozen=True)
class Note(Effect):
    """Tell people a line."""

    line: str


@dataclass(frozen=True)
class TellPending(Effect):
    """Tell every client that a restart waits for the gate; None: it is called off."""

    target: Target | None


@dataclass(frozen=True)
class TellNow(Effect):
    """Tell every client that the restart happens now."""

    target: Target


@dataclass(frozen=True)
class TellFailed(Effect):
    """Tell every client that it did not work; `restored`: this process serves as before, its files are as before."""

    target: Target
    reason: str
    restored: bool


@dataclass(frozen=True)
class Check(Effect):
    """Ask for a newer version."""


@dataclass(frozen=True)
class Task(Effect):
    """Something of one attempt."""

    attempt: int


@dataclass(frozen=True)
class RaiseFence(Task):
    """Let no turn, worker call or prompt start, and ask every blocker once more in the same turn of the loop."""


@dataclass(frozen=True)
class LiftFence(Task):
    """Let them start again."""


@dataclass(frozen=True)
class Apply(Task):
    """Install the staged version and verify it."""

    target: Target


@dataclass(frozen=True)
class Spawn(Task):
    """Start the replacement and listen to it."""

    target: Target


@dataclass(frozen=True)
class Prove(Task):
    """Test the code on disk in a new interpreter."""

    target: Target


@dataclass(frozen=True)
class SendListener(Task):
    """Show the replacement the inherited listener and who we are."""


@dataclass(frozen=True)
class ClosePool(Task):
    """End all workers."""


@dataclass(frozen=True)
class Yield(Task):
    """Answer writes with `retry`, stop accepting, commit what was accepted, close the store."""


@dataclass(frozen=True)
class SendCommit(Task):
    """Give the replacement the word."""


@dataclass(frozen=True)
class Drain(Task):
    """Say goodbye to web sockets and let the accepted connections end."""


@dataclass(frozen=True)
class Kill(Task):
    """End the replacement and everything it started."""


@dataclass(frozen=True)
class TakeBack(Task):
    """Raise the store's epoch, accept connections and messages again."""


@dataclass(frozen=True)
class PutFilesBack(Task):
    """End an installation that still runs and restore the files."""


@dataclass(frozen=True)
class PassOn(Task):
    """Ask the replacement to end, as this process was asked."""


@dataclass(frozen=True)
class Leave(Effect):
    """End this process. `handed_over`: a successor serves."""

    code: int
    handed_over: bool = False


CHILD = (e.Hello, e.Listening, e.Serving, e.Confirmed, e.Goodbye, e.Ended)
"""What a started replacement may say, in this order; the last two at any time."""

ANSWERS: Mapping[type[Effect], tuple[type[e.Event], ...]] = {
    Check: (e.Found, e.CheckEmpty),
    RaiseFence: (e.Rechecked,),
    Apply: (e.Applied, e.ApplyFailed),
    Spawn: (e.Spawned, e.SpawnFailed),
    Prove: (e.Proved, e.ProofFailed),
    ClosePool: (e.PoolClosed,),
    Yield: (e.Yielded, e.YieldFailed),
    Drain: (e.Drained,),
    Kill: (e.Killed,),
    TakeBack: (e.TakenBack, e.TakeBackFailed),
    PutFilesBack: (e.PutBack,),
}
