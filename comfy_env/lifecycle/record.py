"""The two frozen values an environment is: a ledger that outlives its workers and a row per process.

A row is born empty in one place (`WorkerRecord.born_as`), replaced and never mutated, and everything per-process lives in
it, so a replacement forgets all of it at once.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, TypeVar

from comfy_env.lifecycle.deaths import Outcome, Reason
from comfy_env.lifecycle.effects import Effect
from comfy_env.lifecycle.events import Ticket
from comfy_env.lifecycle.story import Story
from comfy_env.settings import Settings
from comfy_env.values import ExitStatus, Want


class State(enum.Enum):
    COLD = "cold"
    SPAWNING = "spawning"
    JOINING = "joining"
    PROVING = "proving"
    READY = "ready"
    BUSY = "busy"
    PINGING = "pinging"
    RELEASING = "releasing"
    CLOSING = "closing"
    WEDGED = "wedged"
    PARKED = "parked"
    GONE = "gone"

    __hash__ = object.__hash__  # members are singletons; the enum's own hash is a Python call, paid at every event


BIRTH = frozenset({State.SPAWNING, State.JOINING, State.PROVING})
SERVING = frozenset({State.READY, State.BUSY, State.PINGING, State.RELEASING})
ALIVE = BIRTH | SERVING


class Closing(enum.Enum):
    """What a CLOSING row waits for."""

    STACK = "its stack"
    EXIT = "its exit"
    GOODBYE = "its own end"
    TREE = "its tree's end"


class Activity(NamedTuple):
    """What changes with every call; kept apart so that a call replaces little."""

    offered: Ticket | None = None     # a ticket that was offered the lane and has not answered
    running: Ticket | None = None     # the ticket whose asker holds the lane
    since: float = 0.0                # lived time of the last sign of life
    silence: float = 0.0              # limit of the offered or running call; 0: none
    interrupt_at: float | None = None # lived time the running call was asked to stop
    calls: int = 0
    swept: float | None = None        # lived time of the last release since the last call
    asking: bool = False              # the running call waits for the host's answer; its silence is not counted


class WorkerRecord(NamedTuple):
    """One process. `held` is bytes it is believed to hold; `due` the lived time its present step must have ended by."""

    generation: int = 0
    state: State = State.COLD
    pid: int | None = None
    device: str | None = None
    born: float = 0.0
    due: float | None = None
    activity: Activity = Activity()
    gpu_ok: bool = True
    held: int = 0
    stand_ins: int = 0
    host_tensors: int = 0
    host_references: int = 0
    prompt: str = ""
    stale: Reason | None = None       # why it will be replaced at its next idle moment
    ending: Reason | None = None      # why it is being ended
    stack: str = ""
    status: ExitStatus | None = None
    proved: float | None = None       # lived time it was trusted; None while it is being born
    settling: float | None = None     # lived time at which the change that made it stale has settled
    wanted: Want | None = None        # a release that waits for the lane
    closing: Closing | None = None    # what a CLOSING row waits for
    verdict: Outcome | None = None    # how its call (or, in its birth, its callers) will be answered

    @classmethod
    def born_as(cls, generation: int, now: float, due: float) -> WorkerRecord:
        """Return the empty row of a process about to be started: the only place a row comes to life."""
        return cls(generation, State.SPAWNING, born=now, due=due, activity=Activity(since=now))


class Ledger(NamedTuple):
    """What outlives a process. `waiting` is FIFO; `deaths` are lived times inside the crash window."""

    generation: int = 0
    waiting: tuple[tuple[Ticket, float | None], ...] = ()
    deaths: tuple[float, ...] = ()
    parked_until: float | None = None
    parks: int = 0
    park_reason: str = ""
    closed: bool = False
    shutdown_due: float | None = None
    prompt: str = ""
    tight: tuple[str, ...] = ()
    zygote: bool = False
    story: Story = Story()
    quarantined: bool = False         # stand-ins of a former worker are kept until the next registration


class Env(NamedTuple):
    """An environment as the machine sees it. `limits` are the settings with the plan's own overrides applied."""

    key: str
    limits: Settings = Settings()
    killable: bool = True
    ledger: Ledger = Ledger()
    row: WorkerRecord = WorkerRecord()


Step = tuple[Env, tuple[Effect, ...]]
"""What every handler returns: the next value and what the driver must do."""

_T = TypeVar("_T", Activity, WorkerRecord, Ledger)


def changed(value: _T, **changes: Any) -> _T:
    """Return a copy of a value with some fields changed."""
    return value._replace(**changes)


def with_activity(env: Env, state: State, activity: Activity) -> Env:
    """Return the env with its row's state and activity changed; the short way every call takes."""
    row = env.row
    parts = (row.generation, state, *row[2:_ACTIVITY], activity, *row[_ACTIVITY + 1:])
    return Env(env.key, env.limits, env.killable, env.ledger, WorkerRecord._make(parts))


def with_story(env: Env, tale: Story) -> Env:
    """Return the env with another story; the other thing every call changes."""
    ledger = Ledger._make((*env.ledger[:_STORY], tale, *env.ledger[_STORY + 1:]))
    return Env(env.key, env.limits, env.killable, ledger, env.row)


_ACTIVITY = WorkerRecord._fields.index("activity")
_STORY = Ledger._fields.index("story")


def with_row(env: Env, **changes: Any) -> Env:
    """Return the env with some fields of its row changed."""
    return Env(env.key, env.limits, env.killable, env.ledger, changed(env.row, **changes))


def with_ledger(env: Env, **changes: Any) -> Env:
    """Return the env with some fields of its ledger changed."""
    return Env(env.key, env.limits, env.killable, changed(env.ledger, **changes), env.row)


def with_parts(env: Env, ledger: Ledger, row: WorkerRecord) -> Env:
    """Return the env with another ledger and row."""
    return Env(env.key, env.limits, env.killable, ledger, row)
