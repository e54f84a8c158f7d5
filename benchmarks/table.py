"""A run as Markdown: who is how fast in each row, with the spread over the rounds, and what became of the targets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks.figures import Verdict, digits, figures, judged, shown, spread
from benchmarks.peers import BY_KEY, OURS, PEERS
from benchmarks.rows import JOB_BY_KEY, ROWS, Row


def measured(result: Mapping[str, Any]) -> list[Row]:
    """Return the rows a run was asked for."""
    return [row for row in ROWS if row.job in result["jobs_run"]]


def verdicts(result: Mapping[str, Any], row: Row) -> list[Verdict]:
    return [judged(result, row, target) for target in row.targets]


def summary(result: Mapping[str, Any]) -> list[str]:
    """The table of our own figures beside the best peer's and the targets."""
    lines = ["| row | work | here | spread | targets | |", "|---|---|---:|---|---|---|"]
    return [*lines, *(_summed(result, row) for row in measured(result))]


def _summed(result: Mapping[str, Any], row: Row) -> str:
    told = verdicts(result, row)
    mine = figures(result, row.key).get(OURS)
    value = shown(mine.median, row.unit) if mine else _absent(result, row, OURS)
    between = spread(mine, row.unit) if mine else ""
    return f"| `{row.key}` | {row.title} | {value} | {between} | {'; '.join(one.text for one in told)} | {word(told)} |"


def word(told: Iterable[Verdict]) -> str:
    """Return one word for all targets of a row."""
    met = [one.met for one in told]
    if False in met:
        return "**missed**"
    return "kept" if met and None not in met else ("kept as far as measured" if True in met else "")


def everyone(result: Mapping[str, Any]) -> list[str]:
    """One small table per row: each peer, its median and spread, and how many times ours that is."""
    return [line for row in measured(result) if not ours_alone(row) for line in _one_row(result, row)]


def ours_alone(row: Row) -> bool:
    return row.alone or len(JOB_BY_KEY[row.job].peers) == 1


def alone(result: Mapping[str, Any]) -> list[str]:
    """What the rows that nobody else has say beside their figure."""
    told = [(row, result["rows"].get(row.key, {}).get(OURS, {}).get("note", "") or row.note) for row in measured(result)]
    lines = [f"| `{row.key}` | {row.title} | {cell(note)} |" for row, note in told if note and ours_alone(row)]
    return ["### Rows of this package alone", "", "| row | work | |", "|---|---|---|", *lines, ""] if lines else []


def _one_row(result: Mapping[str, Any], row: Row) -> Iterator[str]:
    told = figures(result, row.key)
    yield from (f"### `{row.key}`: {row.title}", "")
    if row.note:
        yield from (_sentence(row.note), "")
    yield from ("| who | median | spread | ÷ ours | |", "|---|---:|---|---:|---|")
    for peer in sorted(_who(result, row), key=lambda key: told[key].median if key in told else float("inf")):
        yield _cells(result, row, peer)
    yield ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _who(result: Mapping[str, Any], row: Row) -> list[str]:
    return [peer.key for peer in PEERS if peer.key in JOB_BY_KEY[row.job].peers and peer.key in result["peers"]]


def _cells(result: Mapping[str, Any], row: Row, peer: str) -> str:
    told = figures(result, row.key)
    note = result["rows"].get(row.key, {}).get(peer, {}).get("note", "")
    title = f"**{BY_KEY[peer].title}**" if peer == OURS else BY_KEY[peer].title
    if peer not in told:
        return f"| {title} | – | | | {_absent(result, row, peer)} |"
    one = told[peer]
    return f"| {title} | {shown(one.median, row.unit)} | {spread(one, row.unit)} | {_beside(told, peer)} | {cell(note)} |"


def _beside(told: Mapping[str, Any], peer: str) -> str:
    if OURS not in told or peer == OURS or told[OURS].median <= 0 or told[peer].median == float("inf"):
        return ""
    return digits(told[peer].median / told[OURS].median)


def _absent(result: Mapping[str, Any], row: Row, peer: str) -> str:
    """Say why somebody has no figure in a row."""
    missing = result["peers"].get(peer, {}).get("missing", "")
    if missing:
        return cell(f"not installed: {missing}")
    for key, told in result["jobs"].items():
        if told.get(peer) and (key == row.job or row.key.startswith(key)):
            return cell("cannot: " + told[peer]["cannot"] if "cannot" in told[peer] else "failed: " + told[peer]["failed"])
    return "not measured"


def cell(text: str) -> str:
    """Return a text that stays in its cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def whole(result: Mapping[str, Any]) -> str:
    """Return the tables of a run as one Markdown text."""
    return "\n".join([*summary(result), "", *everyone(result), *alone(result)]).rstrip() + "\n"
