"""What was seen of a history from outside: one step, and a short memory of the steps before it.

It is told by events and effects alone, apart from the machine on purpose: a machine that deceives itself is still
found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.record import Env


@dataclass(frozen=True, slots=True)
class Memory:
    """What was asked, answered, started, trusted, ended and seen gone so far."""

    asked: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    started: frozenset[int] = frozenset()
    trusted: frozenset[int] = frozenset()
    judged: frozenset[int] = frozenset()   # generations whose end was decided
    ended: frozenset[int] = frozenset()    # generations whose process is known to be gone

    def after(self, moment: Moment) -> Memory:
        """Return the memory with a step added."""
        event = moment.event
        asked = self.asked | {event.ticket} if type(event) is e.CallWanted else self.asked
        settled, started, judged = self.settled, self.started, self.judged
        for effect in moment.effects:
            if type(effect) is f.Settle:
                settled = settled | {effect.ticket}
            elif type(effect) is f.Spawn:
                started = started | {effect.generation}
            elif type(effect) in (f.Kill, f.AskStack, f.Goodbye):
                judged = judged | {effect.generation}
        return Memory(asked, settled, started, moment.trusted(), judged, moment.ended())


@dataclass(frozen=True, slots=True)
class Moment:
    """One step as it was seen from outside."""

    memory: Memory
    before: Env
    event: e.Event
    now: float
    after: Env
    effects: tuple[f.Effect, ...]

    def has(self, kind: type[f.Effect]) -> bool:
        return bool(self.effects) and any(type(effect) is kind for effect in self.effects)

    def each(self, kind: type[f.Effect]) -> Iterator[f.Effect]:
        return (effect for effect in self.effects if type(effect) is kind)

    def trusted(self) -> frozenset[int]:
        """Return the generations that have proved themselves, this event included."""
        event, known = self.event, self.memory.trusted
        if isinstance(event, e.Proved) and event.proof.cpu == event.proof.echo == event.expected:
            return known | {event.generation}
        return known

    def ended(self) -> frozenset[int]:
        """Return the generations known to be gone; a thread is gone with its own end, a process with its tree."""
        event, known = self.event, self.memory.ended
        if not isinstance(event, (e.TreeGone, e.SpawnFailed, e.ProcessExited)):
            return known
        whole = self.before.killable and type(event) is e.ProcessExited
        return known if whole else known | {event.generation}
