"""The table itself: every row has a test, the page says what the table says, and a row that fires nothing fails."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import pytest

from tests.faults import table
from tests.faults.recorder import KEY
from tests.house.tree import ROOT, script


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    return script("docs/reliability.py")


def test_every_row_of_the_table_has_a_test_and_no_test_names_another():
    marked = table.marked()
    assert sorted(marked, key=table.order) == sorted(table.ROWS, key=table.order)


def test_the_table_is_complete():
    wanted = [f"L{n}" for n in range(1, 7)] + [f"F{n}" for n in range(1, 23)] + [f"X{n}" for n in range(1, 13)]
    assert sorted(table.ROWS, key=table.order) == wanted


def test_the_committed_page_has_every_row_of_the_table_and_tells_its_outcome(writer):
    page = writer.PAGE.read_text(encoding="utf-8")
    assert page.startswith(writer.HEAD)
    for name, row in table.ROWS.items():
        line = re.search(rf"^\| {name} \|.*$", page, re.MULTILINE)
        assert line and f"| {row.what} | {row.promised} |" in line[0], f"run `make reliability`: {name}"
        assert re.search(r"\| (held \(|\*\*failed|not run)", line[0]), line[0]


def test_a_page_tells_failures_missing_rows_and_whole_tests_as_upper_bounds(writer):
    found = {
        "a": {"rows": ["F1"], "outcome": "passed", "fired": 3, "worst": 0.25, "seconds": 9.0},
        "b": {"rows": ["F1"], "outcome": "passed", "fired": 1, "worst": None, "seconds": 1.0},
        "c": {"rows": ["F2", "F3"], "outcome": "failed", "fired": 1, "worst": None, "seconds": 1.5},
        "d": {"rows": ["F3"], "outcome": "skipped", "fired": 1, "worst": None},
    }
    page = writer.page(found)
    assert "| 4 | held (2 tests) | 250 ms |" in page and page.count("**failed: 1 of 1 tests** | ≤ 1.5 s |") == 2
    assert {"F2: failed", "F3: failed", "F4: not run"} <= set(writer.troubles(found)) and "F1: passed" not in writer.troubles(found)


NOTHING = """
import pytest
from tests.faults.conftest import fired, pytest_runtest_makereport  # noqa: F401

@pytest.mark.row("F1")
def test_that_does_nothing():
    assert True

@pytest.mark.row("F2")
def test_that_counts(fired):
    fired(2)
    with fired.timed():
        pass
"""


def test_a_row_that_fires_no_fault_fails_and_what_is_counted_is_kept(tmp_path):
    (tmp_path / "test_it.py").write_text(NOTHING)
    (tmp_path / "conftest.py").write_text(
        "from tests.faults.conftest import *  # noqa: F403\nfrom tests.faults.conftest import pytest_runtest_makereport  # noqa: F401\n"
    )
    ini = "[pytest]\nmarkers =\n    row(ids): x\n    long: x\n"
    (tmp_path / "pytest.ini").write_text(ini)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "1 error" in done.stdout and "no fault was fired" in done.stdout, done.stdout
    kept = (tmp_path / ".pytest_cache" / "v" / KEY).read_text()
    assert '"fired": 2' in kept and '"F2"' in kept
