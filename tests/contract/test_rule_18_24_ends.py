"""Rules 18 and 24: the clean stop, the host's own death, and nothing after close."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from comfy_env import WorkerPool, errors

CODE = Path(__file__).parents[1] / "code"

HOST = textwrap.dedent("""
    import sys, threading
    from comfy_env import EnvPlan, WorkerPool
    from comfy_env.settings import Settings
    from pathlib import Path
    settings = Settings(runtime_folder=Path(sys.argv[1]) / "run", log_folder=Path(sys.argv[1]) / "logs")
    pool = WorkerPool(settings)
    plan = EnvPlan.existing(sys.executable, "busy", root=sys.argv[2])
    pool.call(plan, "jobs:pid")
    print("ready", flush=True)
    pool.call(plan, sys.argv[3], *sys.argv[4:])
""")


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_host_killed_while_a_worker_holds_the_gil_takes_the_worker_and_its_grandchild(tmp_path, eventually, load, record_property):
    note = tmp_path / "pids"
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path), str(CODE), "jobs:hold_the_gil_with_a_grandchild", str(note)], stdout=subprocess.PIPE
    )
    try:
        eventually(lambda: Path(f"{note}.ready").exists(), 30)
        pids = [int(word) for word in Path(f"{note}.ready").read_text().split()]
        killed = time.monotonic()
        os.kill(host.pid, signal.SIGKILL)
        eventually(lambda: all(gone(pid) for pid in pids), load(1.0))
        record_property("host killed, group gone after (s)", round(time.monotonic() - killed, 4))
    finally:
        host.kill()
        host.wait()
        host.stdout.close()


def test_close_ends_busy_workers_within_one_shared_deadline(settings, make_plan, load):
    pool = WorkerPool(settings)
    plans = [make_plan(f"busy{i}", limits={"shutdown": 0.5}) for i in range(3)]
    with ThreadPoolExecutor(3) as threads:
        pids = list(threads.map(lambda plan: pool.call(plan, "jobs:pid"), plans))
        calls = [threads.submit(pool.call, plan, "jobs:hold_the_gil", 600) for plan in plans]
        while any(pool.record(plan).state != "busy" for plan in plans):
            assert not any(call.done() for call in calls)
        started = time.monotonic()
        pool.close()
        took = time.monotonic() - started
        assert all(isinstance(call.exception(10), (errors.PoolClosed, errors.CallFailed)) for call in calls)
    assert took < load(4.0), f"took {took:.2f} s"
    assert all(gone(pid) for pid in pids)


def test_nothing_spawns_after_close(settings, plan):
    pool = WorkerPool(settings)
    pool.call(plan, "jobs:pid")
    pool.close()
    with pytest.raises(errors.PoolClosed):
        pool.call(plan, "jobs:pid")
    assert pool.records() == []
    pool.close()


def test_close_leaves_no_run_folder_but_the_story(settings, plan):
    with WorkerPool(settings) as pool:
        pool.call(plan, "jobs:pid")
    left = [path for path in settings.runtime_folder.rglob("*") if path.is_file()]
    assert [path.name for path in left if path.suffix == ".json"] == [f"{plan.key}.json"]
    assert not [path for path in left if path.name.startswith("host-")]


def test_an_interpreter_that_forgets_to_close_leaves_no_worker(tmp_path):
    script = HOST.replace('pool.call(plan, sys.argv[3], *sys.argv[4:])', 'print(pool.record(plan).pid, flush=True)')
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path), str(CODE), "-"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert gone(int(done.stdout.split()[-1]))
    assert done.stderr == ""
