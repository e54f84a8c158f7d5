"""Tells a step in one line of the story. Everyday steps of a serving worker share a line with a count."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from comfy_env.lifecycle import effects, events, story
from comfy_env.lifecycle.brief import brief
from comfy_env.lifecycle.deaths import Kind, Outcome
from comfy_env.lifecycle.record import SERVING, Env, with_story
from comfy_env.values import ExitStatus, Proof, Want

QUIET = frozenset({events.Accepted, events.CallAlive, events.HeldGrew, events.HostHoldsChanged, events.PromptChanged})
"""Steps that are part of something told elsewhere."""

EVERYDAY = frozenset({effects.Settle, effects.Dispatch, effects.Ping, effects.Release, effects.SendInterrupt})
"""Effects that may appear in an everyday step."""

CALLS = {kind: f"call {kind.name.lower()}" for kind in Kind}

ORDINARY: dict[type, Callable[[Any], str]] = {
    events.CallEnded: lambda event: CALLS[event.outcome.kind],
    events.SignOfLife: lambda event: f"sign of life: {event.stage}",
    events.Receipt: lambda event: f"released {event.freed} bytes, {event.held} still held",
    events.Ponged: lambda event: "answered a ping",
}


def tell(before: Env, event: events.Event, after: Env, wanted: tuple[effects.Effect, ...], now: float) -> Env:
    """Return the env with the step entered in its story."""
    kind = type(event)
    if kind in QUIET:
        return after
    row = after.row
    if _is_everyday(before, after, wanted):
        text = _everyday(kind, event, wanted)
        return with_story(after, story.called(after.ledger.story, now, text, row.generation)) if text else after
    text, short = _line(before, event, after, wanted), brief(before, event, after, wanted)
    return with_story(after, story.told(after.ledger.story, now, text, row.generation, short))


def _is_everyday(before: Env, after: Env, wanted: tuple[effects.Effect, ...]) -> bool:
    was, now_is = before.row.state, after.row.state
    if was is not now_is and not (was in SERVING and now_is in SERVING):
        return False
    for effect in wanted:
        if type(effect) not in EVERYDAY:
            return False
    return True


def _everyday(kind: type, event: events.Event, wanted: tuple[effects.Effect, ...]) -> str:
    words = ORDINARY.get(kind)
    if words is not None:
        return words(event)
    for effect in wanted:
        if isinstance(effect, effects.Settle):
            return f"call not begun: {effect.outcome.kind.name.lower()}"
    return ""


def _line(before: Env, event: events.Event, after: Env, wanted: tuple[effects.Effect, ...]) -> str:
    parts = ["a limit passed" if type(event) is events.Tick else words(event)]
    if before.row.state is not after.row.state:
        parts.append(f"{before.row.state.value} → {after.row.state.value}")
    if wanted:
        parts.append(", ".join(_settled(effect) if isinstance(effect, effects.Settle) else words(effect) for effect in wanted))
    return "; ".join(parts)


def _settled(effect: effects.Settle) -> str:
    """Tell an answer by its kind only: the event before it says why."""
    return f"ticket {effect.ticket} is told {effect.outcome.kind.name.lower().replace('_', ' ')}"


def words(thing: Any) -> str:
    """Return an event or effect in words: its name, then what it carries."""
    name = "".join(f" {c.lower()}" if c.isupper() else c for c in type(thing).__name__).strip()
    unsaid = UNSAID.get(type(thing), ())
    shown = (_shown(f.name, getattr(thing, f.name)) for f in fields(thing) if f.name != "generation" and f.name not in unsaid)
    facts = ", ".join(fact for fact in shown if fact)
    return f"{name} ({facts})" if facts else name


def _shown(name: str, value: Any) -> str:
    if value is None or value == "":
        return ""
    show = next((show for kind, show in SHOWN.items() if isinstance(value, kind)), None)
    return show(name, value) if show else f"{name} {value}"


def _outcome(name: str, value: Outcome) -> str:
    return ": ".join(part for part in (value.kind.name.lower(), value.message, str(value.status or "")) if part)


def _last_line(name: str, value: str) -> str:
    return value.strip().splitlines()[-1] if value.strip() else ""


UNSAID: dict[type, tuple[str, ...]] = {
    effects.Note: ("level",),
    events.CallWanted: ("seen",),  # how its asker came to the lane
    events.CrashTold: ("stack",),
    events.StackRead: ("text",),  # the error shows it whole
    events.Proved: ("expected",),  # a digest tells nobody anything
    events.ShutdownWanted: ("due",),  # lived time, which is no time of day
    effects.Goodbye: ("deadline",),
}
"""What a line leaves out."""

SHOWN: dict[type, Callable[[str, Any], str]] = {
    Proof: lambda name, value: "",
    Outcome: _outcome,
    enum.Enum: lambda name, value: str(value.value),
    Want: lambda name, value: "everything" if value.bytes is None else f"{value.bytes} bytes",
    bool: lambda name, value: name if value else "",
    float: lambda name, value: f"{name} {value:.3f}",
    str: _last_line,
    ExitStatus: lambda name, value: str(value),
}
"""How a field is told; the first kind that fits counts."""
