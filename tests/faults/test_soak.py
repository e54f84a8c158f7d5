"""L5: random faults from a seed, while threads call; `make soak MINUTES=10 SEED=7` is the long version."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import CALLS, FAULTS, fingerprint, plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.row("L5")
@pytest.mark.parametrize("minutes", [0.2, pytest.param(10, marks=[pytest.mark.long, pytest.mark.deadline(900)])])
def test_random_faults_give_no_wrong_answer_and_leave_nothing(fired, tmp_path, minutes):
    summary = tmp_path / "summary.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", str(minutes), "--seed", "7", "--json", str(summary)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=minutes * 60 + 120, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads(summary.read_text())
    fired(sum(found["faults"].values()))
    fired.took(found["longest"])
    assert set(found["faults"]) == set(FAULTS) and found["calls"]["answered"] > 100 * minutes
    assert (found["wrong"], found["left"]) == ([], [])


def test_the_same_seed_plans_the_same_deeds_and_another_one_others():
    assert fingerprint(7, 4, 3) == fingerprint(7, 4, 3) != fingerprint(8, 4, 3)
    first, again, other = (list(itertools.islice(plan(7, caller, 3), 500)) for caller in (0, 0, 1))
    assert first == again != other
    assert {deed.kind for deed in first} == {*CALLS, *FAULTS} and {deed.env for deed in first} == {0, 1, 2}
