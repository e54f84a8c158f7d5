"""The idle gate: from what every blocker says, whether a restart costs nobody anything, and if not, what it waits for. Pure.

Unknown is busy. Of the render alone it becomes idle after a hold, with a reason to log: a ComfyUI that was killed in the
middle of a render must not keep the gate shut until somebody starts it again. A kind that nobody reports is unknown too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from comfy_env.values import Idle, Unknown, Verdict


class Kind(enum.Enum):
    """Who speaks; the value is how people know it."""

    TURN = "turn"
    QUEUE = "queued message"
    HELD = "held message"
    CALL = "worker call"
    RENDER = "render"
    UPTIME = "uptime"
    SUCCESSION = "succession"
    PLUGIN = "plugin"


MUST_SPEAK = frozenset(Kind) - {Kind.PLUGIN}


@dataclass(frozen=True)
class Blocker:
    """What one speaker says. ``name`` tells speakers of one kind apart."""

    kind: Kind
    verdict: Verdict
    name: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind.value} {self.name}".strip()


@dataclass(frozen=True)
class Waiting:
    """Somebody the gate waits for, or no longer waits for. ``seconds`` is how long it has said so."""

    kind: Kind
    title: str
    reason: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.title}: {self.reason} ({in_words(self.seconds)})"


@dataclass(frozen=True)
class Gate:
    """The judgement. ``assumed``: counted as idle though unknown; ``overdue``: unknown for so long that people are told."""

    waiting: tuple[Waiting, ...] = ()
    assumed: tuple[Waiting, ...] = ()
    overdue: tuple[Waiting, ...] = ()

    @property
    def open(self) -> bool:
        return not self.waiting


def judge(blockers: Iterable[Blocker], now: float, *, hold: float, overdue: float, asked: bool = False) -> Gate:
    """Judge what all blockers say. `asked`: somebody wants the restart, so the uptime does not count."""
    heard = [blocker for blocker in _completed(blockers, now) if not (asked and blocker.kind is Kind.UPTIME)]
    unsure = [blocker for blocker in heard if isinstance(blocker.verdict, Unknown)]
    assumed = [blocker for blocker in unsure if blocker.kind is Kind.RENDER and _age(blocker, now) >= hold]
    late = [blocker for blocker in unsure if blocker.kind is Kind.PLUGIN and _age(blocker, now) >= overdue]
    busy = [blocker for blocker in heard if not isinstance(blocker.verdict, Idle) and blocker not in assumed]
    return Gate(_told(busy, now), _told(assumed, now), _told(late, now))


def _completed(blockers: Iterable[Blocker], now: float) -> list[Blocker]:
    """Add an unknown for every kind that must speak and did not."""
    heard = list(blockers)
    silent = MUST_SPEAK - {blocker.kind for blocker in heard}
    missing = (Blocker(kind, Unknown("nobody reports it", now)) for kind in sorted(silent, key=lambda kind: kind.value))
    return [*heard, *missing]


def _told(blockers: Iterable[Blocker], now: float) -> tuple[Waiting, ...]:
    return tuple(_waiting(blockers, now))


def _waiting(blockers: Iterable[Blocker], now: float) -> Iterator[Waiting]:
    for blocker in blockers:
        reason = getattr(blocker.verdict, "reason", "")
        known = f"unknown: {reason}" if isinstance(blocker.verdict, Unknown) else reason
        yield Waiting(blocker.kind, blocker.title, known, _age(blocker, now))


def _age(blocker: Blocker, now: float) -> float:
    since = getattr(blocker.verdict, "since", None)
    return 0.0 if since is None else max(0.0, now - since)


def in_words(seconds: float) -> str:
    """Return a duration for people."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
