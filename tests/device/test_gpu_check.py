"""The script for real devices says what it did: a table of checks, or that there is no device, by its exit code too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks import gpu_bench, gpu_check
from benchmarks.gpu_checks import Skipped
from tests.house.tree import ROOT


def test_without_a_device_it_says_so_and_ends_with_a_code_of_its_own():
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu_check"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=80)
    assert (done.returncode, done.stderr) == (gpu_check.NO_DEVICE, "")
    assert done.stdout == "no device was checked: torch sees no CUDA device in this process\n"


def _fails(bench):
    raise AssertionError("it does not hold")


def _cannot(bench):
    raise Skipped("this machine has one device")


@pytest.mark.parametrize(("checks", "code"), [((lambda bench: "fine",), 0), ((_fails, _cannot), 1), ((_cannot,), 0)])
def test_its_exit_code_tells_whether_every_check_holds(monkeypatch, capsys, checks, code):
    class Card:
        def uuids(self):
            return ["one"]

    class Bench(gpu_bench.CudaBench):
        def __init__(self):
            self.card = Card()

    monkeypatch.setattr(gpu_bench, "CudaBench", Bench)
    monkeypatch.setattr(gpu_bench, "CHECKS", checks)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: "a device")
    assert gpu_check.main() == code
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(checks)
