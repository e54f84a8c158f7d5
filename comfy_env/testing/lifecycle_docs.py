"""Prints the page about the lifecycle from the code: the table, what exploration saw, the duties, the rules.

``python -m comfy_env.testing.lifecycle_docs`` writes the page; nothing on it is drawn by hand.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.contract import DUTIES
from comfy_env.lifecycle.deaths import COUNTED, Kind, Reason
from comfy_env.lifecycle.invariants import INVARIANTS
from comfy_env.lifecycle.machine import TABLE
from comfy_env.lifecycle.record import State
from comfy_env.settings import Settings
from comfy_env.testing.explore import Edge, Exploration, explore, somebody_always_answers
from comfy_env.testing.lifecycle_scenarios import SCENARIOS

PAGE = Path("docs/concepts/lifecycle.md")

INTRO = """\
# The life of a worker

*This page is printed from the code by `python -m comfy_env.testing.lifecycle_docs`; do not edit it.*

A worker is disposable and its replacement is invisible: it is born when a call first needs it, proves itself before it
is trusted, is ended without ceremony, and the next one carries the next generation number. Whatever lives inside a
worker can be made again; it is never the only copy of anything.

All of that is decided by one pure function, `lifecycle.machine.step(env, event, now) -> (env, effects)`. It reads no
clock and takes no lock. An environment is two frozen values: a *ledger* that outlives its workers (who waits, which
generation it is, when the last deaths were, the story) and a *row* for the present process, born empty and never
changed in place. The pool carries the effects out and posts what comes of them as events. News of a generation that is
no longer the row's changes nothing and asks for nothing.
"""


def page(found: Iterable[Exploration] | None = None) -> str:
    """Return the page; `found` saves exploring again."""
    edges = {edge for exploration in found or map(explore, SCENARIOS) for edge in exploration.edges}
    parts = (INTRO, _diagram(edges), _grid(edges), _steps(), _duties(), _invariants(), _reasons(), _endings())
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _diagram(edges: set[Edge]) -> str:
    lines = ["## States", "", "```mermaid", "stateDiagram-v2", "    [*] --> COLD"]
    for (was, after), kinds in sorted(_grouped(edges).items(), key=lambda item: _place(*item[0])):
        lines.append(f"    {was.name} --> {after.name}: {', '.join(sorted(kinds))}")
    return "\n".join([*lines, "    GONE --> [*]", "```", ""])


def _grouped(edges: set[Edge]) -> dict[tuple[State, State], set[str]]:
    groups: dict[tuple[State, State], set[str]] = defaultdict(set)
    for edge in edges:
        groups[edge.state, edge.after].add(edge.event.__name__)
    return groups


def _place(*states: State) -> tuple[int, ...]:
    order = list(State)
    return tuple(order.index(state) for state in states)


def _grid(edges: set[Edge]) -> str:
    intro = "A cell names the states a step may lead to besides its own; `·` is a step that stays; an empty cell changes nothing."
    rows = (_row(kind, edges) for kind in TABLE)
    return "\n".join(["## Events and states", "", intro, "", *_table(["event", *(state.name for state in State)], rows), ""])


def _row(kind: type[e.Event], edges: set[Edge]) -> list[str]:
    def cell(state: State) -> str:
        if state not in TABLE[kind]:
            return ""
        after = sorted((edge.after for edge in edges if edge[:2] == (state, kind)), key=_place)
        return ", ".join(target.name for target in after) or "·"

    return [f"`{kind.__name__}`", *map(cell, State)]


def _steps() -> str:
    rows = ([f"`{kind.__name__}`", ", ".join(states), words] for kind in TABLE for words, states in _handled(kind))
    return "\n".join(["## What each step does", "", *_table(["event", "in", "what happens"], rows), ""])


def _handled(kind: type[e.Event]) -> Iterator[tuple[str, list[str]]]:
    told: dict[str, list[str]] = defaultdict(list)
    for state in sorted(TABLE[kind], key=_place):
        told[_first_line(TABLE[kind][state])].append(state.name)
    yield from told.items()


def _duties() -> str:
    settings = {field.name: field for field in fields(Settings)}

    def limit(name: str) -> str:
        return f"{settings[name].default:g} s (`{settings[name].metadata['variable']}`)" if name else ""

    rows = (
        [f"`{effect.__name__}`", duty.by, ", ".join(f"`{answer.__name__}`" for answer in duty.answers), limit(duty.limit)]
        for effect, duty in DUTIES.items()
    )
    head = ["effect", "carried out by", "answered by", "limit"]
    return "\n".join(["## Effects", "", *_table(head, rows), ""])


def _invariants() -> str:
    intro = "Exploration checks these at every step of every history it can reach, and finds every fault planted against them."
    lines = (f"* *{rule.__name__.replace('_', ' ').capitalize()}.* {_first_line(rule)}" for rule in (*INVARIANTS, somebody_always_answers))
    return "\n".join(["## What always holds", "", intro, "", *lines, ""])


def _reasons() -> str:
    rows = ([reason.name, reason.value, "yes" if reason in COUNTED else ""] for reason in Reason)
    head = ["reason", "a worker is ended because", "counts for the crash loop"]
    return "\n".join(["## Why a worker ends", "", *_table(head, rows), ""])


def _endings() -> str:
    rows = ([kind.name, f"`{kind.value}`" if kind.value else "a result", _first_line(kind.error) if kind.value else ""] for kind in Kind)
    return "\n".join(["## How a call ends", "", *_table(["ending", "its asker gets", "meaning"], rows), ""])


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def main() -> int:
    """Write the page below the folder the command runs in."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
