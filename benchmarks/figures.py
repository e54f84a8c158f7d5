"""The arithmetic: medians and spread over rounds, units, and what became of a target. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import BY_KEY, OURS
from benchmarks.rows import BEST, Row, Target

UNITS = {"us": (1e6, "µs"), "ms": (1e3, "ms"), "s": (1.0, "s"), "MiB": (1 / (1 << 20), "MiB"), "": (1.0, "")}
NOT_RIVALS = ("inprocess", "socketpair", OURS)
"""Limits and ourselves: "the best peer" is none of them."""


@dataclass(frozen=True)
class Figure:
    """The median of a row's rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class Verdict:
    """What became of one target; `met` is None where it could not be judged."""

    text: str
    met: bool | None


def figure(rounds: Sequence[float]) -> Figure | None:
    """Return the figure of a row's rounds, None where there was none; a round that never ended counts as infinite."""
    if not rounds:
        return None
    return Figure(statistics.median(rounds), min(rounds), max(rounds), len(rounds))


def number(value: float) -> float:
    """Return a stored value: JSON has no infinity, "never" stands for it."""
    return math.inf if value == "never" else float(value)


def shown(value: float, unit: str) -> str:
    """Return a value in its row's unit with about three digits."""
    if math.isinf(value):
        return "never"
    factor, name = UNITS[unit]
    if unit == "ms" and value >= 1:
        factor, name = UNITS["s"]
    return f"{digits(value * factor)} {name}".strip()


def digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(one: Figure, unit: str) -> str:
    """Return "low–high" without the unit, as far as the rounds ended."""
    if one.rounds < 2 or math.isinf(one.low):
        return ""
    low, high = shown(one.low, unit), shown(one.high, unit)
    return f"{low.split()[0]}–{high}" if low.split()[-1] == high.split()[-1] else f"{low}–{high}"


def figures(result: Mapping[str, Any], row: str) -> dict[str, Figure]:
    """Return the figures of everyone who has any in a row."""
    told = {peer: figure([number(value) for value in cell.get("rounds", ())]) for peer, cell in result["rows"].get(row, {}).items()}
    return {peer: one for peer, one in told.items() if one is not None}


def best(told: Mapping[str, Figure]) -> str:
    """Return who is fastest among the peers, "" where no peer has a figure."""
    rivals = {peer: one.median for peer, one in told.items() if peer not in NOT_RIVALS}
    return min(rivals, key=lambda peer: rivals[peer]) if rivals else ""


def judged(result: Mapping[str, Any], row: Row, target: Target) -> Verdict:
    """Return what became of a target in a run."""
    told = figures(result, row.key)
    mine = told.get(OURS)
    limit, words = _limit(result, row, target, told)
    if mine is None or limit is None:
        return Verdict(f"{words}: not measured", None)
    measured = _measured(mine.median, limit, target, row)
    return Verdict(f"{words}: {measured}", mine.median <= limit)


def _limit(result: Mapping[str, Any], row: Row, target: Target, told: Mapping[str, Figure]) -> tuple[float | None, str]:
    if not target.to:
        return target.plus, f"≤ {shown(target.plus, row.unit)}"
    of = figures(result, target.row) if target.row else told
    who = best(told) if target.to == BEST else target.to
    plus = f" + {shown(target.plus, row.unit)}" if target.plus else ""
    words = f"≤ {target.times:g} × {_called(target, who)}{plus}"
    return (of[who].median * target.times + target.plus if who in of else None), words


def tightest(result: Mapping[str, Any], row: Row) -> float | None:
    """Return the lowest limit of a row's targets that can be told, None where there is none."""
    limits = [_limit(result, row, target, figures(result, row.key))[0] for target in row.targets]
    return min((limit for limit in limits if limit is not None and math.isfinite(limit)), default=None)


def _called(target: Target, who: str) -> str:
    title = BY_KEY[who].title if who in BY_KEY else "a peer"
    if target.row:
        return f"{'own' if who == OURS else title} `{target.row}`"
    return f"the best peer ({title})" if target.to == BEST else title


def _measured(mine: float, limit: float, target: Target, row: Row) -> str:
    """Say the ratio where the target is one, and how far off where it is missed."""
    if math.isinf(limit):
        return "kept, the other never"
    off = "" if mine <= limit else f", {digits(mine / limit)} times too much"
    if not target.to or not target.times or target.plus:
        return f"{shown(mine, row.unit)}{off}"
    return f"{digits(mine / limit * target.times)}{off}"
