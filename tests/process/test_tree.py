"""The one kill: nobody of a worker's tree is left, nobody else is touched, the status is real."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from comfy_env.process import launch, pins, procs, tree
from comfy_env.process.output import Output
from comfy_env.values import ExitStatus
from tests.process.kit import PlainEndpoint, carriers, launch_of, python, read_all, running

SLEEP = "import time; time.sleep(60)"
FAMILY = """
import os, time
tell = lambda: os.write(1, b'%d\\n' % os.getpid())  # whole lines, whoever writes at the same time
def child(*acts):
    pid = os.fork()
    if not pid:
        for act in acts:
            act()
        tell()
        time.sleep(60)
child()
child(lambda: os.setpgid(0, 0))
child(os.setsid)
child(os.setsid, lambda: os.fork() and os._exit(0))
tell()
time.sleep(60)
"""
BOMB = """
import os, time
print('on', flush=True)
while True:
    if os.fork() == 0:
        if os.getpid() % 2:
            os.setsid()
        time.sleep(60)
    time.sleep(0.005)
"""
CHAIN = """
import os, time
print('on', flush=True)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.005)
"""
STACKED = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
def deep_in_a_node():
    print('on', flush=True)
    %s
deep_in_a_node()
"""


def end(process, seconds=5.0):
    return tree.end(process, nonce=process.nonce, deadline_seconds=seconds)


def test_children_groups_sessions_and_orphans_all_go(start, eventually):
    process = start(FAMILY)
    family = {int(line) for line in read_all(process, eventually, 5)}
    assert len(family) == 5
    killed = end(process)
    assert killed.status == ExitStatus(signal=signal.SIGKILL) and not killed.note
    assert process.pid in killed.pids
    assert not [pid for pid in family if running(pid)] and not carriers(process.nonce)


@pytest.mark.row("F12")
def test_a_member_outlives_a_dead_leader_and_is_ended_while_the_leaders_number_is_kept(start, eventually):
    process = start("import os, time\nif os.fork() == 0:\n    print(os.getpid(), flush=True)\n    time.sleep(60)\nos._exit(9)")
    member = int(read_all(process, eventually, 1)[0])
    eventually(process.exit_status)
    assert running(member) and process.pinned
    killed = end(process)
    assert killed.status == ExitStatus(code=9) and not running(member)
    assert process.pid not in killed.pids


def test_a_member_that_dropped_its_environment_but_not_its_session_goes_too(start, eventually):
    process = start(
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'], env={}, process_group=0)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    member = int(read_all(process, eventually, 1)[0])
    assert procs.row(member).group == member
    end(process)
    assert not running(member)


@pytest.mark.row("F11")
@pytest.mark.parametrize("program", [BOMB, CHAIN], ids=["200 forks a second, half in new sessions", "a chain of sessions"])
def test_a_tree_that_forks_while_it_is_killed_is_ended(start, eventually, program):
    process = start(program)
    read_all(process, eventually, 1)
    eventually(lambda: len(carriers(process.nonce)) > 20 or program is CHAIN)
    killed = end(process)
    assert not killed.note and not carriers(process.nonce)


@pytest.mark.row("F10")
def test_a_worker_that_ignores_signals_or_stopped_itself_is_ended(start, eventually):
    process = start(
        "import os, signal\nfor s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
        "print('on', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)"
    )
    read_all(process, eventually, 1)
    assert end(process).status.signal == signal.SIGKILL


def test_killing_twice_and_from_four_threads_gives_one_status_and_no_error(start):
    process = start(FAMILY)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(end(process))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [killed.status.signal for killed in found] == [signal.SIGKILL] * 4
    assert end(process).status.signal == signal.SIGKILL


@pytest.mark.row("X9")
def test_bystanders_with_our_paths_in_their_arguments_or_half_a_nonce_live(start, host):
    process = start(SLEEP)
    argv = [sys.executable, "-I", "-S", "-c", SLEEP, process.nonce, str(process.run_folder)]
    half = {**os.environ, "COMFY_ENV_NONCE": process.nonce[:-1], "OTHER": f"COMFY_ENV_NONCE={process.nonce}"}
    bystanders = [subprocess.Popen(argv, start_new_session=True), subprocess.Popen(argv, env=half)]
    end(process)
    assert [one.poll() for one in bystanders] == [None, None]
    for one in bystanders:
        one.kill()
        one.wait()


@pytest.mark.row("F13")
def test_what_will_not_die_is_named_at_the_limit_and_not_collected(start, monkeypatch):
    process = start(SLEEP)
    with monkeypatch.context() as patch:
        patch.setattr(pins.signal, "pidfd_send_signal", lambda *args: None)
        patch.setattr(type(process), "signal_group", lambda self, signum: False)
        began = time.monotonic()
        killed = end(process, 0.2)
    assert time.monotonic() - began < 1.5
    assert killed.status is None and str(process.pid) in killed.note and "alive" in killed.note
    assert process.pinned


def test_where_nothing_can_be_looked_at_the_group_is_killed_and_the_trouble_is_told(start, monkeypatch, eventually):
    process = start(SLEEP)

    def no_descriptors(*args):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(procs, "pids", no_descriptors)
        killed = end(process, 0.1)
    assert killed.status is None and "Too many open files" in killed.note
    assert eventually(process.exit_status).signal == signal.SIGKILL and process.pinned
    assert end(process).status.signal == signal.SIGKILL


def test_with_sigchld_ignored_the_tree_still_goes_and_the_status_is_told_as_lost(start, eventually):
    process = start(FAMILY)
    read_all(process, eventually, 5)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        killed = end(process)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not carriers(process.nonce) and "lost" in str(killed.status)


class Foreign:
    """A process as another backend hands it over."""

    def __init__(self, child: subprocess.Popen) -> None:
        self.child = child
        self.pid = child.pid
        self.outputs = ()
        self.data = None

    def exit_handle(self):
        return None

    def exit_status(self):
        row = procs.row(self.pid)
        return None if row and not row.dead else ExitStatus(signal=9)


@pytest.mark.parametrize("new_session", [True, False])
def test_another_backends_process_is_ended_even_without_a_nonce_and_in_our_own_group(new_session):
    child = subprocess.Popen(python(SLEEP), start_new_session=new_session)
    killed = tree.end(Foreign(child), nonce="f" * 32, deadline_seconds=5)
    assert killed.status.signal == signal.SIGKILL and killed.pids == (child.pid,)
    assert procs.row(child.pid) is None
    child.wait()


def test_another_backends_process_that_it_collected_already_hurts_nobody():
    child = subprocess.Popen(python("pass"))
    child.wait()
    assert tree.end(Foreign(child), nonce="f" * 32, deadline_seconds=5).pids == ()


NATIVE = "import ctypes; [ctypes.PyDLL(None).sleep(60) for _ in range(9)]"  # a signal ends one sleep


@pytest.mark.parametrize("busy", ["time.sleep(60)", NATIVE], ids=["idle", "holding the GIL"])
def test_a_worker_shows_its_stack_even_while_native_code_holds_the_gil(start, eventually, busy):
    process = start(STACKED % busy)
    read_all(process, eventually, 1)
    output = Output("kit")

    def arrived():
        output.feed(process.outputs[1])
        return "deep_in_a_node" in output.stack_text()

    assert tree.stack(process, 5.0, arrived) is True
    assert arrived() and process.exit_status() is None


def test_a_worker_behind_a_wrapper_shows_its_stack(start, eventually):
    process = start(argv=("/bin/sh", "-c", '"$@"; true', "wrapper", *python(STACKED % "time.sleep(60)")))
    read_all(process, eventually, 1)
    output = Output("kit")
    assert tree.stack(process, 5.0, lambda: bool(output.feed(process.outputs[1]) and output.stack_text()))
    assert process.exit_status() is None


def test_a_worker_that_cannot_answer_is_not_ended_by_the_question(start, eventually):
    process = start("print('on', flush=True); " + SLEEP)
    read_all(process, eventually, 1)
    began = time.monotonic()
    assert tree.stack(process, 5.0) is False
    assert time.monotonic() - began < 1 and process.exit_status() is None


AS_PID_ONE = """
import os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from comfy_env.process import launch, procs, rundir, tree
from tests.process.kit import PlainEndpoint, launch_of, python
assert os.getpid() == 1, os.getpid()
host = rundir.HostRun.open(Path(sys.argv[1]))
family = python("import os, time\\nfor n in range(3):\\n    if os.fork() == 0:\\n"
                "        os.setsid() if n else None\\n        os.fork()\\n        time.sleep(60)\\nprint('on')\\ntime.sleep(60)")
process = launch.start(launch_of(host, family, PlainEndpoint()))
while len(procs.pids()) < 8:
    os.sched_yield()
killed = tree.end(process, nonce=process.nonce)
host.close()
print(killed.status, [row for row in procs.rows() if row.pid != 1])
"""


def test_a_host_that_is_pid_1_is_left_without_zombies(runtime):
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace can be made here")
    argv = [*unshare, sys.executable, "-c", AS_PID_ONE, str(runtime), *filter(None, sys.path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "ended by signal 9 (SIGKILL) []", done.stderr


def test_a_hundred_starts_and_kills_leave_nothing(host):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        endpoint = PlainEndpoint()
        process = launch.start(launch_of(host, ("/bin/sleep", "60"), endpoint))
        assert end(process).status.signal == signal.SIGKILL
        process.close()
        endpoint.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_tree_nobody_was_told_of_is_ended_and_collected_by_its_nonce(host, start):
    """A backend may start a worker and then lose it."""
    endpoint = PlainEndpoint()
    wanted = launch_of(host, python(FAMILY), endpoint)
    lost = subprocess.Popen(wanted.argv, env=dict(wanted.variables), stdout=subprocess.DEVNULL, start_new_session=True)
    bystander = start(SLEEP)
    assert lost.pid in tree.end_carriers(wanted.nonce)
    assert not carriers(wanted.nonce) and procs.row(lost.pid) is None and running(bystander.pid)
    lost.returncode = 0
    endpoint.close()
