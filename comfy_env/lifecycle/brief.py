"""The part of a story that an error tells: a line per worker, in words that need no knowledge of the machine.

The whole story stays in `comfy-env story`; here are only births, deaths and how many calls were served between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comfy_env.lifecycle import effects, events
from comfy_env.lifecycle.record import SERVING, Env, State
from comfy_env.lifecycle.story import Line, Story

MOST_WORKERS = 3
_CALL = "call "
_NOT_BEGUN = "call not begun"
_STARTED = "started"


def brief(before: Env, event: events.Event, after: Env, wanted: Iterable[effects.Effect]) -> str:
    """Return what a step means for the worker's life, in a few words; '' for most steps."""
    if isinstance(event, events.Spawned):
        return _STARTED
    if isinstance(event, events.WontDie):
        return "did not die"
    if isinstance(event, events.CrashTold):
        return str(event.status)
    if before.row.state is State.PROVING and after.row.state in SERVING:
        return "was ready"
    return next((_ending(event, effect) for effect in wanted if isinstance(effect, effects.Kill)), "")


def _ending(event: events.Event, kill: effects.Kill) -> str:
    status = event.status if isinstance(event, events.ProcessExited) else None
    return str(status) if status else f"was ended ({kill.reason.value})"


def tail(story: Story, now: float) -> tuple[str, ...]:
    """Return a line for each of the last few workers; `now` is lived time."""
    lives: dict[int, list[Line]] = {}
    for line in story.lines:
        if line.brief or _is_call(line):
            lives.setdefault(line.generation, []).append(line)
    return tuple(_life(generation, lines, now) for generation, lines in list(lives.items())[-MOST_WORKERS:] if _was_born(lines))


def _is_call(line: Line) -> bool:
    return line.ordinary and line.text.startswith(_CALL) and not line.text.startswith(_NOT_BEGUN)


def _was_born(lines: Sequence[Line]) -> bool:
    return any(line.brief == _STARTED for line in lines)


def _life(generation: int, lines: Sequence[Line], now: float) -> str:
    """Return one worker's line; a time is said where it differs from the one before."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.text] = counts.get(line.text, 0) + line.count
    facts, then = [], ""
    for line in _each_once(lines):
        when = ago(now - line.at)
        if line.ordinary:
            facts.append(_calls(line.text, counts[line.text]))
        else:
            facts.append(line.brief if when == then else f"{line.brief} {when}")
            then = when
    return f"generation {generation}: {', '.join(facts)}"


def _each_once(lines: Sequence[Line]) -> Iterable[Line]:
    first: dict[str, Line] = {}
    for line in lines:
        first.setdefault(line.brief or line.text, line)
    return first.values()


def _calls(text: str, count: int) -> str:
    return f"{count} call{'s' if count > 1 else ''} {text.removeprefix(_CALL)}"


def ago(seconds: float) -> str:
    """Return how long ago something was, no finer than people care for."""
    if seconds < 1:
        return "just now"
    if seconds < 100:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 6000 else f"{seconds / 3600:.1f} h ago"
