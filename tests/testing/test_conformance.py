"""The contract's tests find a backend that claims what it does not keep, or breaks a rule outright."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest, sys
from comfy_env.backends.inprocess import InProcessBackend
from comfy_env.hooks import hookimpl
from comfy_env.testing.conformance import BackendContract
from comfy_env.values import Released

class Wrong(InProcessBackend):
    {body}

class TestWrong(BackendContract):
    @pytest.fixture
    def backend(self):
        return Wrong()
"""
FAULTS = {
    "claims a process of its own": ('capabilities = frozenset({"own_process"})', "test_its_worker_is_a_process_of_its_own"),
    "claims dependencies of its own": ('capabilities = frozenset({"own_dependencies"})', "test_what_a_worker_imports_is_not_imported_here"),
    "claims to share devices with itself": (
        'capabilities = frozenset({"zero_copy_gpu"})', "test_memory_of_devices_can_be_lent_over_its_lane"),
    "claims to be forkable": (
        'capabilities = frozenset({"own_process", "forkable"})', "test_what_it_would_start_is_offered_to_the_launchs_forker_first"),
    "claims to kill what it cannot": ('capabilities = frozenset({"killable"})', "test_a_kill_in_mid_call_fails_it_by_name"),
    "raises when it kills twice": (
        "@hookimpl\n    def comfy_env_kill(self, process):\n"
        "        return {}[1] if process.exit_status() else super().comfy_env_kill(process, '', True)",
        "test_kill_may_be_called_twice",
    ),
    "returns no receipt": ("@hookimpl\n    def comfy_env_release(self): return None", "test_a_release_brings_a_measured_receipt"),
    "measures nothing": ("@hookimpl\n    def comfy_env_release(self): return Released(-1, 0)", "test_a_release_brings_a_measured_receipt"),
    "forgets to be a fixture": ("pass\n\nclass TestNone(BackendContract): pass", "test_nothing_is_born_before_the_first_call"),
}


def run(folder, body, test):
    (folder / "test_wrong.py").write_text(SUITE.format(body=body))
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", test, "test_wrong.py"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COMFY_ENV_KILL_SECONDS": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=85, check=False).stdout


@pytest.mark.row("X12")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_backend_that_breaks_its_word_fails_the_rule(tmp_path, fault):
    body, test = FAULTS[fault]
    told = run(tmp_path, body, test)
    assert f"FAILED test_wrong.py::TestWrong::{test}" in told or f"ERROR test_wrong.py::TestNone::{test}" in told, told


def test_an_honest_backend_passes_the_same_rules(tmp_path):
    rules = " or ".join(sorted({test for _, test in FAULTS.values()}))
    told = run(tmp_path, "pass", rules)
    assert "failed" not in told and "passed" in told and "skipped" in told, told
