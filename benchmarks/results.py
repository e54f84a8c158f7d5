"""The results of runs as a document: read, and more rounds added to it. Pure but for reading the file."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.rows import JOBS


def load(file: Path) -> dict[str, Any]:
    """Return the results in a file; raises SystemExit where there are none."""
    if not file.exists():
        raise SystemExit(f"there is no {file}: run `make bench` first")
    return json.loads(file.read_text(encoding="utf-8"))


def added(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return results with the rounds of both; what a peer was last seen unable to do is what counts.

    Raises SystemExit where they are of different machines: such figures do not belong in one median.
    """
    if before["machine"] != more["machine"]:
        raise SystemExit("the results that are there come from another machine or Python: run without --add")
    whole = copy.deepcopy(dict(before))
    whole["runs"] = [*before["runs"], *more["runs"]]
    whole["jobs_run"] = [job.key for job in JOBS if job.key in (*before["jobs_run"], *more["jobs_run"])]
    whole["peers"] = {**before["peers"], **more["peers"]}
    for job, told in more["jobs"].items():
        whole["jobs"].setdefault(job, {}).update(told)
    for row, told in more["rows"].items():
        for peer, cell in told.items():
            _add(whole["rows"].setdefault(row, {}).setdefault(peer, {"rounds": []}), cell)
    return whole


def _add(there: dict[str, Any], cell: Mapping[str, Any]) -> None:
    there["rounds"] = [*there["rounds"], *cell.get("rounds", ())]
    if "note" in cell:
        there["note"] = cell["note"]


def rounds(result: Mapping[str, Any]) -> tuple[int, int]:
    """Return the fewest and the most rounds that a figure was made of."""
    counts = [len(cell["rounds"]) for row in result["rows"].values() for cell in row.values() if cell.get("rounds")]
    return (min(counts), max(counts)) if counts else (0, 0)
