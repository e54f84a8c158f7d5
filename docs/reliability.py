"""Writes the reliability page from what the tests found out: `make reliability` runs them, long ones too, and prints it.

    python docs/reliability.py            write the page from the last runs
    python docs/reliability.py --check    end with 1 if a row has no result or did not hold

The tests' recorder keeps its findings in pytest's cache; runs of parts add up, a newer result replaces an older one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults.recorder import KEY  # noqa: E402
from tests.faults.table import GROUPS, Row  # noqa: E402

FOUND = ROOT / ".pytest_cache" / "v" / KEY
PAGE = ROOT / "docs" / "reference" / "reliability.md"
COLUMNS = ("| row | what happens | what is promised | faults fired | outcome | worst time |", "|---|---|---|---|---|---|")
HEAD = """\
<!-- Written by docs/reliability.py from a test run; `make reliability` runs the tests and writes it anew. -->
# What survives what

Each row is shown by tests that carry its mark, `row("F9")`. A test of the table counts the faults that were really fired and fails if
there were none, so no row holds by doing nothing; a test of another room counts as one fault each time it runs. *Worst time* is the
longest time from a fault to its outcome, or with ≤ the longest whole test where that is not measured apart.

Proven on Linux. The parts for macOS and Windows lie in files of their own behind the same interfaces and are unproven.

    make test TESTS=tests/faults          the table, in about three minutes
    make test ARGS="-m long"              what takes longer: 100,000 calls, 1,000 crashes, 10,000 races, every system call failing
    make soak MINUTES=10 SEED=7           random faults; the same seed plans the same ones
    make reliability                      all of it, and this page
"""


def page(found: dict[str, dict[str, Any]]) -> str:
    """Return the page for the findings of tests by their ids."""
    lines = [HEAD]
    for title, rows in GROUPS.items():
        lines += [f"## {title}", "", *COLUMNS]
        lines += [_line(name, row, [entry for entry in found.values() if name in entry["rows"]]) for name, row in rows.items()]
        lines.append("")
    return "\n".join(lines)


def _line(name: str, row: Row, entries: list[dict[str, Any]]) -> str:
    ran = [entry for entry in entries if entry["outcome"] != "skipped"]
    fired = sum(entry["fired"] for entry in ran)
    return f"| {name} | {row.what} | {row.promised} | {fired:,} | {_outcome(ran)} | {_worst(ran)} |"


def _outcome(ran: list[dict[str, Any]]) -> str:
    failed = sum(entry["outcome"] != "passed" for entry in ran)
    if not ran:
        return "not run"
    return f"**failed: {failed} of {len(ran)} tests**" if failed else f"held ({len(ran)} test{'s' if len(ran) > 1 else ''})"


def _worst(ran: list[dict[str, Any]]) -> str:
    measured = [entry["worst"] for entry in ran if entry.get("worst") is not None]
    if measured:
        return _seconds(max(measured))
    return f"≤ {_seconds(max(entry.get('seconds', 0.0) for entry in ran))}" if ran else ""


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def troubles(found: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Yield what speaks against a row."""
    for name in (name for rows in GROUPS.values() for name in rows):
        outcomes = {entry["outcome"] for entry in found.values() if name in entry["rows"]} - {"skipped"}
        if outcomes != {"passed"}:
            yield f"{name}: {', '.join(sorted(outcomes)) or 'not run'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    against = list(troubles(found))
    if options.check:
        sys.stdout.write("".join(f"{line}\n" for line in against))
        return 1 if against else 0
    PAGE.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
