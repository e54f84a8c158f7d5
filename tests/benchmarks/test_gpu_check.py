"""The script for real devices on a Python without torch. What it does with torch is told in tests/device."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import gpu_check
from tests.house.tree import ROOT

WITHOUT_TORCH = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('benchmarks.gpu_check', run_name='__main__')"


def test_without_torch_it_says_that_nothing_was_checked_and_what_to_do_and_ends_with_a_code_of_its_own():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (gpu_check.NO_DEVICE, "")
    assert done.stdout.startswith(f"no device was checked: torch is not installed for {sys.executable}; install one")
    assert done.stdout.count("\n") == 1
