"""Starting a worker: what it inherits, what it leads, and which refusal has which name."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env import errors
from comfy_env.process import launch, lifeline, pins, procs, records, tree
from tests.process.kit import PlainEndpoint, carriers, launch_of, python, read_all, without
from tests.process.nth import Nth, begun_and_killed

SLEEP = "import time; time.sleep(60)"
TELL = """
import json, os, stat, sys
fds = sorted(int(name) for name in os.listdir('/proc/self/fd'))
print(json.dumps({
    'fds': [fd for fd in fds if os.path.exists(f'/proc/self/fd/{fd}')], 'session': os.getsid(0), 'group': os.getpgrp(), 'pid': os.getpid(),
    'stdin': os.readlink('/proc/self/fd/0'), 'cwd': os.getcwd(), 'nonce': os.environ['COMFY_ENV_NONCE'],
}))
"""


def refused(host, argv, kind, **changes) -> errors.SpawnFailed:
    endpoint = PlainEndpoint()
    try:
        with pytest.raises(kind) as caught:
            launch.start(replace(launch_of(host, argv, endpoint), **changes))
    finally:
        endpoint.close()
    return caught.value


def test_a_worker_leads_its_own_session_and_inherits_its_endpoint_and_nothing_else(host, start, eventually):
    read, write = os.pipe()  # descriptors of the host that must not be seen, even those that say they may be
    os.set_inheritable(read, True)
    process = start(TELL)
    told = json.loads(read_all(process, eventually, 1)[0])
    os.close(read)
    os.close(write)
    assert told["pid"] == told["session"] == told["group"] == process.pid
    assert told["stdin"] == "/dev/null"
    assert len(told["fds"]) == 4  # 0, 1, 2 and the lifeline
    assert told["nonce"] == process.nonce and told["cwd"] == str(process.run_folder)


def test_the_hosts_half_of_the_pipes_is_not_inheritable(start):
    process = start(SLEEP)
    assert not any(os.get_inheritable(fd) for fd in (*process.outputs, process.exit_handle()))


def test_the_record_is_on_disk_with_the_numbers_of_the_process(host, start):
    process = start(SLEEP)
    record = records.read(process.run_folder / records.NAME)
    assert (record.pid, record.pgid, record.started) == (process.pid, process.pid, procs.row(process.pid).started)
    assert (record.nonce, record.host_nonce, record.env, record.generation) == (process.nonce, host.nonce, "kit", 1)
    assert (process.run_folder / records.NAME).stat().st_mode & 0o777 == 0o600


def test_a_missing_interpreter_is_named(host):
    error = refused(host, ("/nowhere/bin/python", "x"), errors.InterpreterMissing)
    assert "/nowhere/bin/python" in str(error) and error.env == "kit" and error.generation == 1 and error.hint


def test_an_interpreter_without_the_right_to_execute_is_named(host, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\n")
    assert "cannot be executed" in str(refused(host, (str(program),), errors.InterpreterMissing))


@pytest.mark.parametrize("content", ["#!/nowhere/python\n", "\x7fELF nonsense"])
def test_a_program_the_system_refuses_is_named(host, tmp_path, content):
    program = tmp_path / "python"
    program.write_text(content)
    program.chmod(0o755)
    assert str(program) in str(refused(host, (str(program),), errors.InterpreterMissing))


def test_a_folder_is_no_interpreter(host, tmp_path):
    refused(host, (str(tmp_path),), errors.InterpreterMissing)


def test_a_missing_working_folder_is_not_blamed_on_the_interpreter(host):
    error = refused(host, python(SLEEP), errors.SpawnFailed, cwd=Path("/nowhere/at/all"))
    assert "/nowhere/at/all" in str(error) and not isinstance(error, errors.InterpreterMissing)


def test_an_argument_the_system_cannot_take_is_a_named_refusal(host):
    assert "null byte" in str(refused(host, (sys.executable, "a\0b"), errors.SpawnFailed))


def test_a_program_without_a_folder_is_looked_for_on_the_workers_path(start):
    assert start(argv=("sleep", "60")).exit_status() is None


def test_a_relative_interpreter_is_meant_from_the_hosts_folder(host, tmp_path, monkeypatch, eventually):
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    endpoint = PlainEndpoint()
    process = launch.start(launch_of(host, ("./python", "-c", "pass"), endpoint))
    assert eventually(process.exit_status).code == 0
    process.reap()
    process.close()
    endpoint.close()


def test_no_garbage_collection_and_no_other_start_collects_a_dead_worker(start, eventually):
    process = start("raise SystemExit(7)")
    eventually(process.exit_status)
    gc.collect()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)  # Popen collects what it believes abandoned
    assert process.pinned and procs.row(process.pid).state == "Z"
    assert process.exit_status().code == 7


def test_a_failed_start_leaves_no_process_and_no_descriptor(host, monkeypatch):
    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records, "add_process", broken)
    before = set(os.listdir("/proc/self/fd"))
    endpoint = PlainEndpoint()
    wanted = launch_of(host, python(SLEEP), endpoint)
    with pytest.raises(errors.SpawnFailed, match="No space"):
        launch.start(wanted)
    endpoint.close()
    assert set(os.listdir("/proc/self/fd")) == before
    assert not [row for row in procs.rows() if procs.carries(row.pid, wanted.nonce)]


@pytest.mark.row("F6")
def test_a_worker_outlives_the_thread_that_started_it(start):
    made = []
    thread = threading.Thread(target=lambda: made.append(start(SLEEP)))
    thread.start()
    thread.join()
    assert not select.select([made[0].exit_handle()], [], [], 0.1)[0] and made[0].exit_status() is None


def test_the_command_isolates_the_interpreter_and_runs_a_folder():
    line = launch.command("/e/bin/python", Path("/run/worker"), 7)
    assert line == ("/e/bin/python", "-I", "-u", "/run/worker", "--boot", "7")


@pytest.mark.row("X11")
def test_blocked_and_ignored_signals_of_the_host_do_not_stop_the_kill(host, start, eventually):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        process = start(SLEEP)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process.signal_group(signal.SIGKILL)
    assert eventually(process.exit_status).signal == signal.SIGKILL


def test_a_wrapper_that_drops_the_marks_of_a_worker_does_not_lose_them(host, eventually):
    endpoint = PlainEndpoint()
    process = launch.start(without(launch_of(host, python(SLEEP), endpoint), procs.NONCE, procs.HOST_NONCE))
    eventually(lambda: procs.carries_both(process.pid, process.nonce, host.nonce))   # in the middle of an exec there is no environment
    tree.end(process, nonce=process.nonce)
    process.close()
    endpoint.close()


def test_a_shell_in_the_kernels_place_ends_with_its_worker(host, monkeypatch, eventually):
    monkeypatch.setattr(lifeline, "works", lambda: False)
    endpoint = PlainEndpoint()
    process = launch.start(launch_of(host, python(SLEEP), endpoint))
    shells = eventually(lambda: [pid for pid in carriers(process.nonce) if pid != process.pid])   # none in the middle of its exec
    assert len(shells) == 1 and procs.row(shells[0]).group != process.pid
    killed = tree.end(process, nonce=process.nonce)
    assert set(killed.pids) == {process.pid, *shells} and procs.row(shells[0]) is None
    process.close()
    endpoint.close()


def test_lanes_with_the_numbers_of_standard_streams_are_refused(host):
    endpoint = PlainEndpoint()
    endpoint.child_fds = (2,)
    try:
        with pytest.raises(errors.SpawnFailed, match="standard stream"):
            launch.start(launch_of(host, python(SLEEP), endpoint))
    finally:
        endpoint.close()


CALLS = [
    (os, "pipe"), (os, "open"), (os, "write"), (os, "rename"), (os, "pidfd_open"), (os, "set_blocking"), (os, "waitid"), (os, "killpg"),
    (os, "listdir"), (fcntl, "fcntl"), (subprocess, "Popen"), (pins.signal, "pidfd_send_signal"), (os, "fchmod"), (os, "waitpid"),
]


@pytest.mark.row("F22")
@pytest.mark.parametrize(("module", "name"), CALLS, ids=[name for _, name in CALLS])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.EAGAIN])
def test_any_call_of_a_start_and_a_kill_may_fail_once_without_a_leak_or_a_stranger_error(host, module, name, code):
    lifeline.works()
    nth = Nth(module, name)
    for number in nth.numbers():
        before = set(os.listdir("/proc/self/fd"))
        endpoint = PlainEndpoint()
        wanted = launch_of(host, ("/bin/sleep", "60"), endpoint)
        begun_and_killed(launch.start, wanted, nth.armed(number, code))
        endpoint.close()
        assert not carriers(wanted.nonce) and set(os.listdir("/proc/self/fd")) == before
    assert number > 1 or name in NEVER_CALLED


NEVER_CALLED = ("waitpid", "pidfd_send_signal")  # by a start and a kill in which everybody is in the group
