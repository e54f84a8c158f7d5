"""Keeps what each marked test found out: how many faults were fired, the outcome, the worst time.

What is kept lies in pytest's own cache, so that runs of parts add up; `docs/reliability.py` prints the page from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.table import ROWS

KEY = "comfy_env/reliability"
COUNT, WORST = "faults fired", "worst seconds"


class Fired:
    """What one test counts: ``fired(n)`` for each fault that really was, `timed` around what must be quick."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self.count = 0
        self.worst: float | None = None

    def __call__(self, times: int = 1) -> None:
        self.count += times

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure from the fault to its outcome; the longest time is the row's."""
        began = time.monotonic()
        yield
        self.took(time.monotonic() - began)

    def took(self, seconds: float) -> None:
        self.worst = max(seconds, self.worst or 0.0)

    def record(self) -> None:
        self._item.user_properties.append((COUNT, self.count))
        if self.worst is not None:
            self._item.user_properties.append((WORST, round(self.worst, 4)))


class Recorder:
    """The part of the run that writes down: one entry per marked test, later runs replace earlier ones."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._rows: dict[str, list[str]] = {}
        self._seen: dict[str, dict[str, Any]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            rows = rows_of(item)
            unknown = [row for row in rows if row not in ROWS]
            if unknown:
                raise pytest.UsageError(f"{item.nodeid}: the reliability table has no row {', '.join(unknown)}")
            if rows:
                self._rows[item.nodeid] = rows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self._rows:
            return
        entry = self._seen.setdefault(report.nodeid, {"rows": self._rows[report.nodeid], "outcome": "passed", "fired": 1})
        if report.outcome != "passed":
            entry["outcome"] = report.outcome
        if report.when == "call":
            entry["seconds"] = round(report.duration, 4)
        told = dict(report.user_properties)
        entry["fired"] = told.get(COUNT, entry["fired"])
        entry["worst"] = told.get(WORST)

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)
        if cache is None or not self._seen:
            return
        kept = {test: entry for test, entry in cache.get(KEY, {}).items() if Path(test.partition("::")[0]).exists()}
        cache.set(KEY, {**kept, **self._seen})


def rows_of(item: pytest.Item) -> list[str]:
    return [row for mark in item.iter_markers("row") for row in mark.args]
