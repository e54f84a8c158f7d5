"""Explores the lifecycle machine exhaustively in a scripted world and prints the shortest trace to a violation.

Breadth first over (environment, world, memory), times relative to now, so every history of the scenario is covered and
the first violation found has a shortest trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from comfy_env.lifecycle import events as e
from comfy_env.lifecycle import invariants
from comfy_env.lifecycle.machine import decide, new_env, next_due
from comfy_env.lifecycle.memory import Memory, Moment
from comfy_env.lifecycle.record import Env, State, Step, changed, with_parts
from comfy_env.lifecycle.telling import words
from comfy_env.testing.lifecycle_scenarios import SCENARIOS
from comfy_env.testing.lifecycle_world import Move, Scenario, World, moves, obliged

Decide = Callable[[Env, e.Event, float], Step]
LONG_AGO = -1000.0
"""Relative times before this are one: every limit of a scenario is shorter."""

MOST_STATES = 60_000


class Node(NamedTuple):
    env: Env
    world: World
    memory: Memory


class Edge(NamedTuple):
    """One kind of step that was seen: what the docs' diagram is drawn from."""

    state: State
    event: type[e.Event]
    after: State


@dataclass(frozen=True)
class Violation:
    """A broken rule with the shortest history that breaks it."""

    scenario: str
    rule: str
    wrong: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"  {number:2}. {line}" for number, line in enumerate(self.trace, 1))
        return f"{self.scenario}: {self.rule}: {self.wrong}, after {len(self.trace)} steps\n{steps}"


@dataclass
class Exploration:
    """What an exploration covered and, if a rule was broken, where."""

    scenario: str
    states: int = 0
    transitions: int = 0
    edges: set[Edge] = field(default_factory=set)
    cells: set[tuple[type[e.Event], State]] = field(default_factory=set)
    violation: Violation | None = None


def explore(scenario: Scenario, decide: Decide = decide) -> Exploration:
    """Visit every state the scenario can reach, stopping at the first broken rule."""
    start = Node(new_env("explored", scenario.limits, scenario.killable), World(), Memory())
    parents: dict[object, tuple[object, Move] | None] = {_key(start): None}
    found = Exploration(scenario.name, states=1)
    layer = [start]
    while layer:
        following: list[Node] = []
        for node in layer:
            for move in moves(scenario, node.env, node.world):
                found.transitions += 1
                moment, nxt = _take(node, move, decide)
                broken = next(_broken(moment, nxt), None)
                if broken is not None:
                    trace = (*_history(parents, _key(node), start, decide), _line(moment))
                    found.violation = Violation(scenario.name, *broken, trace)
                    return found
                _seen(found, moment)
                key = _key(nxt)
                if key not in parents and nxt.env.ledger.generation <= scenario.generations:
                    parents[key] = (_key(node), move)
                    following.append(nxt)
        found.states += len(following)
        if found.states > MOST_STATES:
            raise AssertionError(f"{scenario.name}: more than {MOST_STATES} states; the scenario or a time in the machine does not close")
        layer = following
    return found


def _take(node: Node, move: Move, decide: Decide) -> tuple[Moment, Node]:
    after, effects = decide(node.env, move.event, move.now)
    moment = Moment(node.memory, node.env, move.event, move.now, after, effects)
    env = shifted(after, move.now) if move.now else after
    return moment, Node(env, obliged(move.world, after, move.event, effects), node.memory.after(moment))


def _broken(moment: Moment, nxt: Node) -> Iterator[tuple[str, str]]:
    yield from invariants.violations(moment)
    stuck = somebody_always_answers(nxt)
    if stuck:
        yield somebody_always_answers.__name__, stuck


def somebody_always_answers(node: Node) -> str:
    """While a call is open, an answer, a running call or a limit is still to come."""
    open_calls = node.memory.asked - node.memory.settled
    quiet = not node.world.pending and not node.world.holding and next_due(node.env) is None
    return f"call {min(open_calls)} waits and nothing is under way" if open_calls and quiet else ""


def _seen(found: Exploration, moment: Moment) -> None:
    was, kind = moment.before.row.state, type(moment.event)
    if moment.after is not moment.before or moment.effects:
        found.cells.add((kind, was))
        if moment.after.row.state is not was:
            found.edges.add(Edge(was, kind, moment.after.row.state))


def _key(node: Node) -> object:
    return node.env.ledger, node.env.row, node.world, node.memory


def shifted(env: Env, now: float) -> Env:
    """Return the env with its times relative to `now`, long ago being all one."""

    def back(at: float | None) -> float | None:
        return None if at is None else round(max(LONG_AGO, at - now), 6)

    row, ledger = env.row, env.ledger
    activity = changed(
        row.activity, since=back(row.activity.since), interrupt_at=back(row.activity.interrupt_at), swept=back(row.activity.swept)
    )
    row = changed(row, born=0.0, due=back(row.due), proved=back(row.proved), settling=back(row.settling), activity=activity)
    deaths = tuple(at - now for at in ledger.deaths if now - at <= env.limits.crash_window)
    ledger = changed(ledger, deaths=deaths, parked_until=back(ledger.parked_until), shutdown_due=back(ledger.shutdown_due))
    return with_parts(env, ledger, row)


def _history(parents: dict, key: object, start: Node, decide: Decide) -> Iterator[str]:
    taken: list[Move] = []
    while (link := parents[key]) is not None:
        key, move = link
        taken.append(move)
    node = start
    for move in reversed(taken):
        moment, node = _take(node, move, decide)
        yield _line(moment)


def _line(moment: Moment) -> str:
    event = words(moment.event)
    later = f" {moment.now:g} s later" if moment.now else ""
    was, now_is = moment.before.row, moment.after.row
    parts = [f"{event}{later}", f"#{was.generation} {was.state.value} → #{now_is.generation} {now_is.state.value}"]
    if moment.effects:
        parts.append(", ".join(words(effect) for effect in moment.effects))
    return "; ".join(parts)


def main() -> int:
    """Explore every scenario and tell what was covered."""
    failed = 0
    for scenario in SCENARIOS:
        found = explore(scenario)
        failed += found.violation is not None
        sys.stdout.write(f"{found.states:7} states {found.transitions:8} transitions  {scenario.name}\n")
        if found.violation is not None:
            sys.stdout.write(f"{found.violation}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
