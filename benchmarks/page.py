"""Writes docs/reference/performance.md, and the picture beside it, from the results of a run.

    python -m benchmarks.page                      from benchmarks/out/results.json
    python -m benchmarks.page --results FILE       from another run's
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import picture, table
from benchmarks.peers import CHECKOUT, PEERS
from benchmarks.reasons import WHY
from benchmarks.results import load, rounds

PAGE = CHECKOUT / "docs" / "reference" / "performance.md"
RESULTS = Path(__file__).resolve().parent / "out" / "results.json"
HEAD = "<!-- Written by benchmarks/page.py from a run of `make bench`; `python -m benchmarks.page` writes it anew. -->"
HOW = """\
Figures of one machine, not a promise: what a target is measured against was measured in the same rounds. A figure is the
median over the rounds of each round's median; the spread is the lowest and the highest round. In each round all pairs of a peer and a
job run one after another in shuffled order, each in a process of its own, torch with one thread on both sides. "Fresh" tensors are
made before the clock starts, the result is looked at after it stopped. A cold start begins in a host that has imported its package,
Ray's before its cluster exists. "Never" means within the limit of the row. Everyone loads the same torch and numpy.

    make bench                                            everything, five rounds: most of an hour on two quiet cores
    python -m benchmarks --only comfy_env --rows noop     a quick look
    python -m benchmarks.page                             this page from the last run

Each peer lives in a venv of its own in the user's cache; `COMFY_ENV_BENCH_VENVS` names another folder. The rows `proxy…` need a
ComfyUI: `COMFY_ENV_COMFYUI` names its checkout, `COMFY_ENV_COMFYUI_PYTHON` a Python with its requirements and this package."""


def text(result: Mapping[str, Any], pictured: bool) -> str:
    """Return the page for a run."""
    parts = [
        HEAD, "# What it costs", "", HOW, "", *_circumstances(result), "", "## Targets", "", *table.summary(result), "",
        *_missed(result), "## Everyone", "", *_versions(result), "",
        *(["![every row as a chart](performance.png)", ""] if pictured else []), *table.everyone(result),
        *table.alone(result),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _circumstances(result: Mapping[str, Any]) -> list[str]:
    machine, (fewest, most) = result["machine"], rounds(result)
    lines = [
        "| | |", "|---|---|",
        f"| machine | {machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB |",
        f"| software | Linux {machine['kernel']}, {machine['libc']}, Python {machine['python']}, {machine['torch']} |",
        f"| rounds | {fewest if fewest == most else f'{fewest} to {most}, by row'} |",
        *(_told(run) for run in result["runs"]),
    ]
    if fewest < 5:
        lines += ["", FEW]
    if any(run["load"] > 1.5 for run in result["runs"]):
        lines += ["", LOADED]
    return lines


def _told(run: Mapping[str, Any]) -> str:
    load = f"load average {run['load']:g} ({run['load_low']:g} to {run['load_high']:g}), of which the run itself is about 1"
    return f"| run | {run['day']}, {run['minutes']:.0f} minutes, {load} |"


FEW = "**Provisional.** A full run has five rounds of every row; where there is no spread there was one round."
LOADED = """\
**Others were busy on the machine.** Everyone was measured in the same shuffled rounds, so that ratios still mean
something; single figures, p99 and everything that needs both cores at once are worse than on a quiet machine, and a spread of a factor
of two says no more than that."""


def _missed(result: Mapping[str, Any]) -> list[str]:
    rows = [row for row in table.measured(result) if any(one.met is False for one in table.verdicts(result, row))]
    if not rows:
        return []
    lines = ["## What misses, by how much and why", ""]
    for row in rows:
        missed = "; ".join(one.text for one in table.verdicts(result, row) if one.met is False)
        lines.append(f"- `{row.key}` ({missed}). {WHY.get(row.key, 'Nobody has looked for the reason yet.')}")
    return [*lines, ""]


def _versions(result: Mapping[str, Any]) -> list[str]:
    told = []
    for peer in PEERS:
        facts = result["peers"].get(peer.key, {})
        if facts.get("missing"):
            told.append(f"{peer.title} (not installed: {table.cell(facts['missing'])})")
        elif facts.get("version") and facts["version"] not in peer.title:
            told.append(f"{peer.title} {facts['version']}")
    return [f"Versions: {', '.join(told)}; the others come with Python and torch."] if told else []


def main(words: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__, formatter_class=raw)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args(words)
    result = load(given.results)
    pictured = picture.possible()
    if pictured:
        picture.draw(result, given.page.with_suffix(".png"))
    given.page.write_text(text(result, pictured), encoding="utf-8")
    sys.stdout.write(f"written to {given.page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
