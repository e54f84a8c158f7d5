"""The one pending restart as frozen values: what it aims at, how far it is, what must be undone if it fails. Pure."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Any

from comfy_env.orchestrator.effects import Effect
from comfy_env.orchestrator.target import Target


class Phase(enum.Enum):
    IDLE = "idle"  # nothing to do
    CHECKING = "checking"  # asking for a newer version
    STAGED = "staged"  # something newer is there and is not loaded by itself
    ARMED = "armed"  # waiting for the gate
    GATE_OPEN = "gate open"  # the fence goes up, everybody is asked once more
    APPLYING = "applying"  # the disk is changed
    FENCED = "fenced"  # nothing may start; the replacement is being started or, under a supervisor, proved
    SPAWNED = "spawned"  # it runs and has not proved itself
    PROVEN = "proven"  # it waits for the word; workers end, the store is given up
    COMMITTED = "committed"  # it has the word and does not serve yet
    CONFIRMING = "confirming"  # it serves; this process stands by
    DRAINING = "draining"  # it was confirmed; the last connections end
    ROLLBACK = "rollback"  # it failed; what was done is undone, step by step
    COOLDOWN = "cooldown"  # undone; the same thing is not tried again for a while
    EXIT = "exit"


class Mode(enum.Enum):
    """How this process comes back: it starts its successor, ends for a supervisor, or can only tell."""

    SPAWN = "spawn"
    SUPERVISED = "supervised"
    NOTIFY = "notify"


class Undo(enum.Enum):
    """The steps back, in the order they are taken."""

    KILL = "kill"  # end the replacement and all it started
    TAKE_BACK = "take back"  # the store, the connections, the pool
    PUT_BACK = "put back"  # the files on disk


@dataclass(frozen=True)
class Rules:
    """The switches and limits (seconds)."""

    mode: Mode = Mode.SPAWN
    automatic: bool = True
    autorestart: bool = True
    updates: int = 3
    check: float = 120.0
    fence: float = 60.0
    hello: float = 30.0
    listening: float = 30.0
    pool_close: float = 8.0
    serving: float = 5.0
    confirm: float = 90.0
    drain: float = 12.0
    undo: float = 15.0


@dataclass(frozen=True)
class Failure:
    """A target that was tried and did not work; not before ``until`` is it tried again by itself."""

    id: str
    count: int
    until: float = math.inf


@dataclass(frozen=True)
class Restart:
    """Where this process is on its way to its successor.

    ``attempt`` tells the replacements of this process apart, ``after`` is what to look at when the present attempt has
    failed, ``undo`` the steps back that are left, ``yielded`` whether the store is out of our hands, ``heard`` whether
    the replacement said hello, ``told`` the ids people were told of, ``updated`` the times of automatic updates.
    """

    rules: Rules = Rules()
    phase: Phase = Phase.IDLE
    target: Target | None = None
    by_hand: bool = False
    attempt: int = 0
    due: float | None = None
    fence_due: float | None = None
    heard: bool = False
    yielded: bool = False
    applied: bool = False
    drained: bool = False
    stopping: bool = False
    code: int = 0
    reason: str = ""
    undo: tuple[Undo, ...] = ()
    restored: bool = True
    after: Target | None = None
    told: frozenset[str] = frozenset()
    failures: tuple[Failure, ...] = ()
    updated: tuple[float, ...] = ()

    def failure(self, target: Target) -> Failure | None:
        return next((failure for failure in self.failures if failure.id == target.id), None)


Step = tuple[Restart, tuple[Effect, ...]]


def changed(restart: Restart, **values: Any) -> Restart:
    return replace(restart, **values)


UNDER_WAY = frozenset(
    {
        Phase.GATE_OPEN,
        Phase.APPLYING,
        Phase.FENCED,
        Phase.SPAWNED,
        Phase.PROVEN,
        Phase.COMMITTED,
        Phase.CONFIRMING,
        Phase.ROLLBACK,
    }
)
"""Phases in which one attempt is going on and another may not begin."""
