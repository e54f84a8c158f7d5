"""A process in the host's hand: its status is seen without collecting it, its number stays its own until then."""

from __future__ import annotations

import os
import select
import signal
import threading

import pytest

from comfy_env.process import exits, procs
from comfy_env.process.handle import LocalProcess

SLEEP = "import time; time.sleep(60)"


def readable(fd: int, seconds: float) -> bool:
    return bool(select.select([fd], [], [], seconds)[0])


@pytest.mark.parametrize(("code", "status"), [
    ("raise SystemExit(3)", (3, None)),
    ("import os; os._exit(0)", (0, None)),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", (None, signal.SIGKILL)),
    ("import faulthandler; faulthandler._sigsegv()", (None, signal.SIGSEGV)),
    ("import os; os.abort()", (None, signal.SIGABRT)),
])
def test_the_real_status_is_seen_and_stays_to_be_seen(start, code, status):
    process = start(code)
    assert readable(process.exit_handle(), 10)
    assert (process.exit_status().code, process.exit_status().signal) == status
    assert process.pinned
    assert process.reap() == process.exit_status()
    assert not process.pinned and procs.row(process.pid) is None


def test_a_running_process_has_no_status_and_is_not_collected(start):
    process = start(SLEEP)
    assert process.exit_status() is None and process.reap() is None and process.pinned
    assert not readable(process.exit_handle(), 0)


def test_collecting_twice_and_from_many_threads_gives_the_one_status(start, eventually):
    process = start("raise SystemExit(5)")
    eventually(process.exit_status)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(process.reap())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status.code for status in found} == {5}


def test_after_collecting_no_signal_goes_to_the_groups_number(start, eventually):
    process = start("pass")
    eventually(process.exit_status)
    process.reap()
    assert process.signal_group(signal.SIGKILL) is False


@pytest.mark.row("X11")
def test_a_status_somebody_else_collected_is_told_as_lost(start, eventually):
    process = start("raise SystemExit(5)")
    readable(process.exit_handle(), 10)
    os.waitpid(process.pid, 0)
    status = process.exit_status()
    assert status.code is None and status.signal is None and "lost" in str(status)
    assert process.signal_group(signal.SIGKILL) is False


def test_without_pidfds_a_waiting_thread_tells_the_exit_and_collects_nothing(start, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    process = start("import time; time.sleep(0.5); raise SystemExit(1)")
    assert any(thread.name == f"exit of {process.pid}" for thread in threading.enumerate())
    assert readable(process.exit_handle(), 10)
    assert process.pinned and process.exit_status().code == 1


def test_a_child_that_is_gone_already_has_a_readable_handle(start, eventually):
    process = start("pass")
    eventually(process.exit_status)
    process.reap()
    handle = exits.open_exit_handle(process.pid)
    assert readable(handle, 0)
    os.close(handle)


def test_closing_gives_every_descriptor_back_once(start):
    process = start(SLEEP)
    before = len(os.listdir("/proc/self/fd"))
    process.close()
    process.close()
    assert len(os.listdir("/proc/self/fd")) == before - 3


def test_a_forgotten_handle_closes_its_descriptors(eventually):
    pid = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
    before = len(os.listdir("/proc/self/fd"))
    process = LocalProcess(pid)
    eventually(process.exit_status)
    process.reap()
    del process
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_look_that_the_system_refuses_for_a_moment_is_no_exit(start, eventually, monkeypatch):
    process = start("raise SystemExit(7)")
    eventually(process.exit_status)
    other = start("import time; time.sleep(60)")
    with monkeypatch.context() as patch:
        patch.setattr(os, "waitid", lambda *args: (_ for _ in ()).throw(OSError(12, "Cannot allocate memory")))
        assert other.exit_status() is None and process.exit_status().code == 7
    assert other.pinned
