"""A bounded tale of an environment: births, proofs, limits and deaths are never pushed out by ordinary calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One entry: lived time of the first and the last occurrence, how often, and whether calls may push it out."""

    at: float
    text: str
    generation: int
    last: float
    count: int = 1
    ordinary: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """Immutable; `told` and `called` return the story with one more entry."""

    lines: tuple[Line, ...] = ()
