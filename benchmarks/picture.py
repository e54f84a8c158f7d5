"""A run as a picture: one small bar chart per row, ours in colour, the spread as a line, the tightest target dashed.

Needs matplotlib.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import UNITS, figures, shown, tightest
from benchmarks.peers import BY_KEY, OURS
from benchmarks.rows import Row
from benchmarks.table import measured

COLUMNS = 3
HERE, THERE, LIMIT = "#1f6fb2", "#b8bec6", "#c0392b"


def possible() -> bool:
    """Tell whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(result: Mapping[str, Any], file: Path) -> None:
    """Write the picture of a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in measured(result) if figures(result, row.key)]
    down = max(1, math.ceil(len(rows) / COLUMNS))
    picture, places = pyplot.subplots(down, COLUMNS, figsize=(6 * COLUMNS, 2.9 * down), squeeze=False)
    for place, row in zip(places.flat, rows, strict=False):
        _chart(place, result, row)
    for place in list(places.flat)[len(rows):]:
        place.axis("off")
    picture.tight_layout()
    picture.savefig(file, dpi=80)
    pyplot.close(picture)


def _chart(place: Any, result: Mapping[str, Any], row: Row) -> None:
    told = {peer: one for peer, one in figures(result, row.key).items() if math.isfinite(one.median) and one.median > 0}
    order = sorted(told, key=lambda peer: -told[peer].median)
    factor = UNITS[row.unit][0]
    values = [told[peer].median * factor for peer in order]
    high = [max(0.0, min(told[peer].high, told[peer].median * 100) * factor - value) for peer, value in zip(order, values, strict=True)]
    low = [max(0.0, value - max(told[peer].low, 0) * factor) for peer, value in zip(order, values, strict=True)]
    place.barh([BY_KEY[peer].title for peer in order], values, xerr=[low, high], color=[HERE if peer == OURS else THERE for peer in order])
    limit = tightest(result, row)
    if limit is not None:
        place.axvline(limit * factor, color=LIMIT, linestyle="--", linewidth=1)
    if len(order) > 1:
        place.set_xscale("log")
    for number, peer in enumerate(order):
        place.annotate(" " + shown(told[peer].median, row.unit), (values[number], number), va="center", fontsize=7)
    place.set_title(f"{row.title} ({UNITS[row.unit][1] or 'ratio'})", fontsize=9)
    place.tick_params(labelsize=7)
