"""Explores the restart machine breadth first in its scripted world; the first broken rule has a shortest trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Phase, Restart, Step
from comfy_env.orchestrator.state import step

from .restart_rules import broken
from .restart_world import Moment, Move, Scenario, World, moves, obliged

MOST_STATES = 60_000
LONG_AGO = -7200.0
Decide = Callable[[Restart, e.Event, float], Step]


class Node(NamedTuple):
    restart: Restart
    world: World


@dataclass
class Exploration:
    states: int = 1
    transitions: int = 0
    cells: set[tuple[type, Phase]] = field(default_factory=set)
    edges: set[tuple[Phase, type, Phase]] = field(default_factory=set)
    broken: tuple[str, str] | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = "\n".join(f"  {number:2}. {line}" for number, line in enumerate(self.trace, 1))
        return f"{self.states} states, {self.transitions} transitions" + (f"; {self.broken}\n{steps}" if self.broken else "")


def explore(scenario: Scenario, decide: Decide = step) -> Exploration:
    start = Node(Restart(scenario.rules), World())
    parents: dict[Node, tuple[Node, Move] | None] = {start: None}
    found, layer = Exploration(), [start]
    while layer:
        following: list[Node] = []
        for node in layer:
            for move in moves(scenario, *node):
                found.transitions += 1
                moment, nxt = take(node, move, decide)
                wrong = next(broken(moment), None)
                if wrong is not None:
                    found.broken, found.trace = wrong, (*_history(parents, node, decide), _line(moment))
                    return found
                _seen(found, moment)
                if nxt not in parents and nxt.restart.attempt <= scenario.attempts:
                    parents[nxt] = (node, move)
                    following.append(nxt)
        found.states += len(following)
        assert found.states < MOST_STATES, f"{scenario.name} does not close"
        layer = following
    return found


def take(node: Node, move: Move, decide: Decide) -> tuple[Moment, Node]:
    after, effects = decide(node.restart, move.event, move.now)
    moment = Moment(move.world, node.restart, move.event, move.now, after, effects)
    then = obliged(move.world, moment)
    moment = replace(moment, then=then)
    return moment, Node(_shifted(after, move.now), _later(then, move.now))


def _shifted(restart: Restart, now: float) -> Restart:
    """The restart with its times relative to now: long ago is all one."""

    def back(at: float | None) -> float | None:
        return at if at is None or math.isinf(at) else max(LONG_AGO, at - now)

    if not now:
        return restart
    failures = tuple(replace(failure, until=back(failure.until)) for failure in restart.failures)
    updated = tuple(at - now for at in restart.updated if now - at < 3600)
    return replace(restart, due=back(restart.due), fence_due=back(restart.fence_due), failures=failures, updated=updated)


def _later(world: World, now: float) -> World:
    return replace(world, tried=tuple((what, max(LONG_AGO, at - now)) for what, at in world.tried)) if now else world


def _seen(found: Exploration, moment: Moment) -> None:
    if moment.after is not moment.before or moment.effects:
        found.cells.add((type(moment.event), moment.before.phase))
        found.edges.add((moment.before.phase, type(moment.event), moment.after.phase))


def _history(parents: dict, node: Node, decide: Decide) -> Iterator[str]:
    taken: list[tuple[Node, Move]] = []
    while (link := parents[node]) is not None:
        node, move = link
        taken.append((node, move))
    for at, move in reversed(taken):
        yield _line(take(at, move, decide)[0])


def _line(moment: Moment) -> str:
    later = f" {moment.now:g} s later" if moment.now else ""
    asked = ", ".join(repr(effect) for effect in moment.effects)
    return f"{moment.event!r}{later}: {moment.before.phase.value} -> {moment.after.phase.value}; {asked}"
