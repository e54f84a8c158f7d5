"""The pytest plugin: next to nothing when it is only loaded, an audited pool when it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("comfy_env.pool", "comfy_env.transport", "comfy_env.process", "comfy_env.lifecycle", "psutil", "cloudpickle", "torch", "numpy")


def run(*words, folder=ROOT):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=80, check=False)


def pytest_in(folder, source):
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "comfy_env.testing.plugin", "test_it.py", folder=folder).stdout


def test_loading_the_plugin_loads_nothing_heavy():
    code = f"import sys, comfy_env.testing.plugin; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = run("-c", code)
    assert answer.stdout.strip() == "[]", answer.stderr


def test_a_test_that_leaves_a_thread_fails_by_its_name(tmp_path):
    told = pytest_in(tmp_path, """
import threading
def test_it(nothing_left):
    threading.Thread(target=threading.Event().wait, args=(6,), name="straggler", daemon=True).start()
""")
    assert "thread straggler" in told and "1 passed, 1 error" in told


def test_a_pool_is_there_for_a_test_and_gone_after_it(tmp_path):
    told = pytest_in(tmp_path, """
import os, sys
from comfy_env import EnvPlan
pools = []
def test_it(isolated_pool):
    pools.append(isolated_pool)
    assert isolated_pool.call(EnvPlan.existing(sys.executable, key="x", backend="venv"), "os:getpid") != os.getpid()
def test_it_is_closed():
    assert pools[0].records() == []
""")
    assert "2 passed" in told, told
