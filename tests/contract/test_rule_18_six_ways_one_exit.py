"""Rule 18: crash or limit, clean stop, host killed (worker idle or computing), sweep, reaper: each leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from comfy_env import errors
from comfy_env.testing.stage import LIMIT, needs
from tests.contract.worlds import CODE, REAL, over

HOST = textwrap.dedent("""
    import sys, threading
    from comfy_env import EnvPlan, WorkerPool
    from comfy_env.settings import Settings
    from pathlib import Path
    settings = Settings(runtime_folder=Path(sys.argv[1]) / "run", log_folder=Path(sys.argv[1]) / "logs")
    pool = WorkerPool(settings)
    plan = EnvPlan.existing(sys.executable, "busy", root=sys.argv[2])
    pool.call(plan, "jobs:pid")
""")
CALLS = HOST + "print('ready', flush=True)\npool.call(plan, sys.argv[3], *sys.argv[4:])\n"
THREE = HOST + textwrap.dedent("""
    plans = [EnvPlan.existing(sys.executable, key, root=sys.argv[2]) for key in ("idle", "busy too", "hung")]
    pids = [pool.call(other, "jobs:pid") for other in plans]
    def quietly(other, what, *args):
        try:
            pool.call(other, what, *args)
        except Exception:
            pass
    for call in ((plans[1], "jobs:sleep_on"), (plans[2], "jobs:hold_the_gil", 600)):
        threading.Thread(target=quietly, args=call, daemon=True).start()
    while sum(record.state == "busy" for record in pool.records()) < 2:
        pass
    print(*pids, flush=True)
    threading.Event().wait()
""")


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def started(program, folder, *words):
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder), str(CODE), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def ended():
    """Hosts of their own, ended with the test."""
    hosts = []
    yield hosts.append
    for host in hosts:
        host.kill()
        host.wait()
        host.stdout.close()
        host.stderr.close()


# ---------------------------------------------------------------- 1: a crash (rule 17) or a limit (rule 10); 6: the reaper (rule 13)

def test_a_clean_stop_ends_idle_workers_by_a_goodbye(stage):
    stage.serve()
    process = stage.spy.processes[0]
    stage.pool.close()
    assert process.exit_status() is not None
    assert "kill" in stage.spy.told and stage.pool.records() == []
    assert str(process.exit_status()).startswith("exited with status 0")


@needs("killable", "own_process")
def test_a_clean_stop_has_one_deadline_for_all_workers_together(stage, load, record_property):
    stage.limited(shutdown=0.5)
    plans = [stage.other(f"busy{number}") for number in range(3)]
    pids = [stage.call("whoami", plan=plan)["pid"] for plan in plans]
    calls = [stage.begin("jobs:hold_the_gil", 600, plan=plan) for plan in plans]
    while any(stage.pool.record(plan).state != "busy" for plan in plans):
        assert not any(call.done() for call in calls)
    began = time.monotonic()
    stage.pool.close()
    took = time.monotonic() - began
    record_property("close with three hung workers and a deadline of 0.5 s (s)", round(took, 3))
    assert all(isinstance(call.exception(LIMIT), errors.PoolClosed | errors.CallFailed) for call in calls)
    assert 0.5 <= took < load(2.0)
    assert all(gone(pid) for pid in pids)


def test_a_clean_stop_leaves_no_run_folder_but_the_stories(stage, settings):
    stage.serve()
    stage.pool.close()
    left = [path for path in settings.runtime_folder.rglob("*") if path.is_file()]
    assert [path.name for path in left if path.suffix == ".json"] == [f"{stage.plan.key}.json"]
    assert not [path for path in left if path.name.startswith("host-")]


def test_one_interrupt_of_the_host_ends_it_and_all_its_workers(tmp_path, eventually, ended, load, record_property):
    """One Ctrl-C with an idle, a busy and a hung worker: the exit code as without us, and nothing said (field case B82)."""
    host = started(THREE, tmp_path)
    ended(host)
    pids = [int(word) for word in host.stdout.readline().split()]
    assert len(pids) == 3
    began = time.monotonic()
    host.send_signal(signal.SIGINT)
    _, said = host.communicate(timeout=60)
    took = time.monotonic() - began
    record_property("Ctrl-C with three workers (s)", round(took, 3))
    assert host.returncode in (-signal.SIGINT, 130)
    assert took < load(8.0)
    assert "Exception ignored" not in said and said.rstrip().endswith("KeyboardInterrupt"), said
    eventually(lambda: all(gone(pid) for pid in pids))


def test_an_interpreter_that_forgets_to_close_leaves_no_worker(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HOST + "print(pool.record(plan).pid, flush=True)", str(tmp_path), str(CODE)],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert gone(int(done.stdout.split()[-1]))
    assert done.stderr == ""


# ---------------------------------------------------------------- 3 and 4: the host is killed

@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_host_that_dies_takes_its_idle_worker_with_it(tmp_path, eventually, ended, load, record_property, sig):
    host = started(HOST + "print(pool.record(plan).pid, flush=True)\nthreading.Event().wait()\n", tmp_path)
    ended(host)
    pid = int(host.stdout.readline())
    began = time.monotonic()
    host.send_signal(sig)
    eventually(lambda: gone(pid), load(1.0))
    record_property("host dead, idle worker gone after (s)", round(time.monotonic() - began, 4))


def test_a_host_killed_while_a_worker_holds_the_gil_takes_the_worker_and_its_grandchild(tmp_path, eventually, ended, load, record_property):
    note = tmp_path / "pids"
    host = started(CALLS, tmp_path, "jobs:hold_the_gil_with_a_grandchild", str(note))
    ended(host)
    ready = Path(f"{note}.ready")
    eventually(ready.exists, 30)
    pids = [int(word) for word in ready.read_text().split()]
    began = time.monotonic()
    os.kill(host.pid, signal.SIGKILL)
    eventually(lambda: all(gone(pid) for pid in pids), load(1.0))
    record_property("host killed, group gone after (s)", round(time.monotonic() - began, 4))


# ---------------------------------------------------------------- 5: the sweep at the next start

def test_the_next_start_sweeps_what_a_killed_host_left_and_no_more(tmp_path, eventually, ended, settings):
    """A descendant that left the group outlives the host; the next host's first spawn ends it, and not a bystander."""
    note = tmp_path / "escaped"
    host = started(CALLS, tmp_path, "jobs:escape_with_a_grandchild", str(note))
    ended(host)
    ready = Path(f"{note}.ready")
    eventually(ready.exists, 30)
    worker, escaped = (int(word) for word in ready.read_text().split())
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path / "run")])
    try:
        os.kill(host.pid, signal.SIGKILL)
        eventually(lambda: gone(worker))
        assert not gone(escaped), "it left the group, so the lifeline does not reach it"
        program = HOST + "print(pool.call(plan, 'jobs:add', 1, 1), flush=True)\n"
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), str(CODE)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout.split() == ["2"], done.stderr
        eventually(lambda: gone(escaped))
        assert bystander.poll() is None
        assert not list((tmp_path / "run").glob("host-*"))
    finally:
        bystander.kill()
        bystander.wait()


# ---------------------------------------------------------------- a forked child of the host

@over("venv", "venv-zygote")
def test_a_child_that_the_host_forks_while_a_worker_is_being_born_does_not_keep_it_alive(stage):
    """Its copy of the lifeline is closed from the first moment on, not only once the worker was started."""
    kept = []

    def fork(launch):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                os.fstat(launch.endpoint.lifeline_write)
                os._exit(1)
            os._exit(0)
        kept.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    stage.spy.before["spawn"] = fork
    stage.serve()
    assert kept == [0]


@over(*REAL)
def test_a_forked_child_of_the_host_neither_uses_nor_ends_its_parents_workers(stage):
    """Also when it ends like a program and runs what was registered for that."""
    pid = stage.call("whoami")["pid"]
    child = os.fork()
    if child == 0:
        told = 1
        try:
            stage.pool.call(stage.plan, "jobs:pid")
        except errors.PoolClosed as refusal:
            told = 0 if "forked child" in refusal.message else 2
        finally:
            stage.pool._exit._close()
            stage.pool.close()
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert stage.call("whoami")["pid"] == pid and stage.record.generation == 1
