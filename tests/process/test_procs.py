"""What the system tells about processes, and the portable way to the same answers."""

from __future__ import annotations

import os
import signal

import pytest

from comfy_env.process import procs, tree
from tests.process.kit import carriers, read_all

SLEEP = "import time; time.sleep(60)"
pytestmark = pytest.mark.skipif(not procs.LINUX, reason="both ways can be compared on Linux only")


def test_a_row_tells_parent_group_session_and_start(start):
    process = start(SLEEP)
    row = procs.row(process.pid)
    assert (row.parent, row.group, row.session) == (os.getpid(), process.pid, process.pid)
    assert row.started == process.started >= procs.row(os.getpid()).started and not row.dead


def test_a_program_name_with_brackets_and_spaces_does_not_shift_the_fields(start, eventually):
    process = start("import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) R 1 (b'); print(1); time.sleep(60)")
    read_all(process, eventually, 1)
    assert procs.row(process.pid).group == process.pid


def test_a_zombie_is_dead_and_nobody_is_none(start, eventually):
    process = start("pass")
    eventually(process.exit_status)
    assert procs.row(process.pid).dead
    process.reap()
    assert procs.row(process.pid) is None and procs.environment(process.pid) == b"\0"[:0]


def test_a_process_that_ended_and_was_not_collected_is_ending_and_a_living_one_is_not(start, eventually):
    process = start("raise SystemExit(3)")
    eventually(process.exit_status)
    assert procs.ending(process.pid) and not procs.ending(os.getpid()) and not procs.ending(0)


def test_a_zombie_whose_threads_still_run_is_not_dead(start, eventually):
    process = start(
        "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)" if os.uname().machine == "x86_64" else SLEEP
    )
    if os.uname().machine == "x86_64":
        eventually(lambda: procs.row(process.pid).state == "Z")
    assert not procs.row(process.pid).dead and process.exit_status() is None


def test_only_a_whole_entry_of_the_environment_is_a_mark(start, eventually):
    process = start(SLEEP, X="1\nCOMFY_ENV_NONCE=abc", Y="COMFY_ENV_NONCE=abc")
    eventually(lambda: procs.carries(process.pid, process.nonce))   # in the middle of an exec there is no environment
    assert not any(procs.carries(process.pid, nonce) for nonce in ("abc", "", process.nonce[:-1], process.nonce + "0"))


def test_a_handled_signal_is_told_from_an_unhandled_and_an_ignored_one(start, eventually):
    process = start("import signal\nsignal.signal(10, print)\nsignal.signal(12, signal.SIG_IGN)\nprint(1)\nsignal.pause()")
    read_all(process, eventually, 1)
    assert [procs.catches(process.pid, number) for number in (10, 12, 15)] == [True, False, False]


def test_the_portable_way_gives_the_same_answers(start, monkeypatch, eventually):
    process = start(SLEEP)
    eventually(lambda: procs.carries(process.pid, process.nonce))   # in the middle of an exec there is no environment
    here, environ = procs.row(process.pid), procs.environment(process.pid)
    monkeypatch.setattr(procs, "LINUX", False)
    there = procs.row(process.pid)
    assert (there.pid, there.parent, there.group, there.session) == (here.pid, here.parent, here.group, here.session)
    assert not there.dead and there.started >= procs.row(os.getpid()).started
    assert sorted(procs.environment(process.pid).split(b"\0")) == sorted(environ.split(b"\0"))
    assert process.pid in procs.pids() and procs.pid_namespace() == 0 and procs.boot_id().startswith("boot-")


def test_a_tree_is_ended_in_the_portable_way_without_pidfds(monkeypatch, start, eventually):
    monkeypatch.setattr(procs, "LINUX", False)
    monkeypatch.delattr(os, "pidfd_open")
    process = start("import os, time\nif not os.fork():\n    os.setsid()\n    os.write(1, b'on\\n')\ntime.sleep(60)")
    read_all(process, eventually, 1)
    assert len(carriers(process.nonce)) == 2
    killed = tree.end(process, nonce=process.nonce)
    assert killed.status.signal == signal.SIGKILL and not carriers(process.nonce)
