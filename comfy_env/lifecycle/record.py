"""The two frozen values an environment is: a ledger that outlives its workers and a row per process.

A row is born empty in one place (`WorkerRecord.born`), replaced and never mutated, and everything per-process lives in
it, so a replacement forgets all of it at once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.events import Ticket
from comfy_env.lifecycle.story import Story
from comfy_env.settings import Settings
from comfy_env.values import ExitStatus


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


@dataclass(frozen=True, slots=True)
class Activity:
    """What changes with every call; kept apart so that a call replaces little."""

    offered: Ticket | None = None     # a ticket that was offered the lane and has not answered
    running: Ticket | None = None     # the ticket whose asker holds the lane
    since: float = 0.0                # lived time of the last sign of life
    silence: float = 0.0              # limit of the running call; 0: none
    interrupt_at: float | None = None # lived time the running call was asked to stop
    calls: int = 0


@dataclass(frozen=True, slots=True)
class WorkerRecord:
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


@dataclass(frozen=True, slots=True)
class Ledger:
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


@dataclass(frozen=True, slots=True)
class Env:
    """An environment as the machine sees it. `limits` are the settings with the plan's own overrides applied."""

    key: str
    limits: Settings = field(default_factory=Settings)
    killable: bool = True
    ledger: Ledger = Ledger()
    row: WorkerRecord = WorkerRecord()
