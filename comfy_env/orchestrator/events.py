"""What the restart machine hears. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from comfy_env.orchestrator.target import Target


@dataclass(frozen=True)
class Event:
    """Something that happened."""


@dataclass(frozen=True)
class News(Event):
    """Something of one attempt; news of another attempt changes nothing."""

    attempt: int


# ---- reasons to restart


@dataclass(frozen=True)
class CheckDue(Event):
    """It is time to ask for a newer version."""


@dataclass(frozen=True)
class CheckEmpty(Event):
    """There is none, or it could not be told."""


@dataclass(frozen=True)
class Found(Event):
    """A newer version is staged, or a changed tree has settled and passed its test."""

    target: Target


@dataclass(frozen=True)
class Vanished(Event):
    """The tree is again what this process was started from."""


@dataclass(frozen=True)
class Asked(Event):
    """Somebody wants a restart; `target` is what to restart into where nothing is staged."""

    target: Target


# ---- the way


@dataclass(frozen=True)
class GateOpened(Event):
    """Every blocker says idle."""


@dataclass(frozen=True)
class Rechecked(News):
    """What the gate says behind the fence."""

    open: bool


@dataclass(frozen=True)
class Applied(News):
    """The disk holds the new version, verified."""


@dataclass(frozen=True)
class ApplyFailed(News):
    why: str


@dataclass(frozen=True)
class Spawned(News):
    """The replacement's process runs."""


@dataclass(frozen=True)
class SpawnFailed(News):
    why: str


@dataclass(frozen=True)
class Hello(News):
    """The replacement speaks."""


@dataclass(frozen=True)
class Listening(News):
    """The replacement has checked the store and found its agents."""


@dataclass(frozen=True)
class PoolClosed(News):
    """No worker is left."""


@dataclass(frozen=True)
class Yielded(News):
    """Nothing is accepted any more, everything accepted is committed, the store is closed."""


@dataclass(frozen=True)
class YieldFailed(News):
    why: str


@dataclass(frozen=True)
class Serving(News):
    """The replacement owns the store and accepts connections."""


@dataclass(frozen=True)
class Confirmed(News):
    """The replacement has served for the whole probation."""


@dataclass(frozen=True)
class Goodbye(News):
    """The replacement ends because it was asked to."""

    code: int


@dataclass(frozen=True)
class Ended(News):
    """The replacement ended without a goodbye, or said why it cannot go on."""

    why: str


@dataclass(frozen=True)
class Drained(News):
    """The last accepted connection ended."""


@dataclass(frozen=True)
class Proved(News):
    """The code on disk passed its test: the supervisor may start it."""


@dataclass(frozen=True)
class ProofFailed(News):
    why: str


# ---- the way back


@dataclass(frozen=True)
class Killed(News):
    """Nothing of the replacement is left."""


@dataclass(frozen=True)
class TakenBack(News):
    """The store is ours again, connections are accepted."""


@dataclass(frozen=True)
class TakeBackFailed(News):
    why: str


@dataclass(frozen=True)
class PutBack(News):
    """What became of the files: restored or not."""

    ok: bool


# ---- always


@dataclass(frozen=True)
class StopWanted(Event):
    """Somebody asked this process to end."""


@dataclass(frozen=True)
class Tick(Event):
    """Time passed."""
