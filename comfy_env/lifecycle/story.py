"""A bounded tale of an environment: births, proofs, limits and deaths are never pushed out by ordinary calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MOST_IMPORTANT = 160
MOST_ORDINARY = 40


@dataclass(frozen=True, slots=True)
class Line:
    """One entry: lived time of the first and the last occurrence, how often, and whether calls may push it out.

    ``brief`` is what an error tells of it.
    """

    at: float
    text: str
    generation: int
    last: float
    count: int = 1
    ordinary: bool = False
    brief: str = ""


class Story(NamedTuple):
    """Immutable; `told` and `called` return the story with one more entry."""

    lines: tuple[Line, ...] = ()


def told(story: Story, at: float, text: str, generation: int, brief: str = "") -> Story:
    """Return the story with a line that only later lines of its own weight can push out."""
    return _bounded((*story.lines, Line(at, text, generation, at, brief=brief)))


def called(story: Story, at: float, text: str, generation: int) -> Story:
    """Return the story with an everyday line; a run of equal ones is one line with a count."""
    lines = story.lines
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if not line.ordinary or line.generation != generation:
            break
        if line.text == text:
            more = Line(line.at, text, generation, at, line.count + 1, True)
            return Story((*lines[:index], more, *lines[index + 1:]))
    return _bounded((*lines, Line(at, text, generation, at, 1, True)))


def _bounded(lines: tuple[Line, ...]) -> Story:
    if len(lines) <= MOST_ORDINARY:
        return Story(lines)
    ordinary = sum(line.ordinary for line in lines)
    if ordinary > MOST_ORDINARY:
        return Story(_without_first(lines, True))
    return Story(_without_first(lines, False) if len(lines) - ordinary > MOST_IMPORTANT else lines)


def _without_first(lines: tuple[Line, ...], ordinary: bool) -> tuple[Line, ...]:
    index = next(i for i, line in enumerate(lines) if line.ordinary is ordinary)
    return lines[:index] + lines[index + 1:]


def lines_text(story: Story, now: float | None = None) -> tuple[str, ...]:
    """Return the story's lines for people; with `now` (lived time) each says how long ago, else at what lived time."""
    return tuple(f"{_when(line, now)}  #{line.generation}  {line_text(line)}" for line in story.lines)


def _when(line: Line, now: float | None) -> str:
    return f"at {line.at:.3f} s" if now is None else f"{max(0.0, now - line.at):.3f} s ago"


def line_text(line: Line) -> str:
    """Return what a line tells, without its time."""
    if line.count == 1:
        return line.text
    return f"{line.text} ({line.count} times in {line.last - line.at:.3f} s)"
