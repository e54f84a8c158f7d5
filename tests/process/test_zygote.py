"""A zygote in the host's hand: it forks whole or not at all, and what it forked is seen, ended and collected like a child."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env import errors
from comfy_env.process import forked, launch, lifeline, procs, records, tree, zygote
from comfy_env.process.rundir import HostRun
from comfy_env.process.zygote import ForkFailed, Zygote
from comfy_env.transport.boot import boot_document
from comfy_env.transport.endpoint import SocketEndpoint
from comfy_env.values import EnvPlan, ExitStatus, Launch
from tests.nights import night_in
from tests.process.kit import carriers, running
from tests.process.nth import Nth, begun_and_killed

pytestmark = pytest.mark.skipif(not zygote.possible(), reason="this system lets no host have workers forked")


def wanted(host: HostRun, endpoint: SocketEndpoint, python: str | Path = sys.executable, generation: int = 1) -> Launch:
    """Return the launch of a real worker."""
    plan, run = EnvPlan.existing(python, "kit"), host.new_worker("kit", generation)
    it = Launch(
        env="kit", generation=generation, plan=plan, argv=launch.command(python, host.worker_folder, endpoint.boot_fd), cwd=run.folder,
        variables=launch.worker_variables(plan, nonce=run.nonce, host_nonce=host.nonce, generation=generation), import_roots=(),
        run_folder=run.folder, worker_folder=host.worker_folder, nonce=run.nonce, host_nonce=host.nonce, endpoint=endpoint,
        auth_key=b"k" * 32,
    )
    endpoint.write_boot(boot_document(it, endpoint, run.record_path))
    return it


class Nursery:
    """One zygote, and the workers forked from it that are not ended yet."""

    def __init__(self, host: HostRun, python: str | Path = sys.executable) -> None:
        self.host, self.python = host, python
        self.given: list[tuple[SocketEndpoint, forked.ForkedProcess]] = []
        endpoint = SocketEndpoint()
        self.zygote = Zygote.start(wanted(host, endpoint, python), host.new_worker("kit", 0), ("PIL",), 20.0)
        endpoint.close()
        self.zygote.warm(60.0)

    def fork(self) -> forked.ForkedProcess:
        endpoint = SocketEndpoint()
        try:
            process = self.zygote.fork(wanted(self.host, endpoint, self.python))
        except BaseException:
            endpoint.close()
            raise
        self.given.append((endpoint, process))
        return process

    def close(self) -> None:
        for endpoint, process in self.given:
            tree.end(process, nonce=process.nonce)
            process.close()
            endpoint.close()
        self.zygote.end()


@pytest.fixture
def nursery(host) -> Iterator[Nursery]:
    made = Nursery(host)
    assert made.zygote.serves, made.zygote.refusal
    yield made
    made.close()


def test_every_supported_python_forks(host, interpreters):
    for python in interpreters.values():
        made = Nursery(host, python)
        try:
            assert made.zygote.serves, (python, made.zygote.refusal)
            process = made.fork()
            assert running(process.pid) and procs.row(process.pid).parent == made.zygote.pid
        finally:
            made.close()


def test_a_forked_worker_leads_its_own_session_and_carries_its_own_mark(nursery):
    one, other = nursery.fork(), nursery.fork()
    for process in (one, other):
        row = procs.row(process.pid)
        assert (row.group, row.session, row.parent) == (process.pid, process.pid, nursery.zygote.pid)
        assert carriers(process.nonce) == [process.pid]
    assert carriers(nursery.zygote.nonce) == [nursery.zygote.pid]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_real_status_is_seen_and_stays_to_be_seen_until_it_is_collected(nursery, signum):
    process = nursery.fork()
    os.kill(process.pid, signum)
    assert select.select([process.exit_handle()], [], [], 10)[0]
    assert process.exit_status() == ExitStatus(signal=signum) and process.pinned
    assert process.reap() == ExitStatus(signal=signum)
    assert not process.pinned and procs.row(process.pid) is None and process.reap() == ExitStatus(signal=signum)
    assert process.signal_group(signal.SIGKILL) is False


def test_a_worker_whose_host_closed_its_lanes_exits_with_its_own_status(nursery, eventually):
    process = nursery.fork()
    nursery.given[-1][0].main.close()
    nursery.given[-1][0].side.close()
    assert eventually(process.exit_status, 30) == ExitStatus(code=1)


def test_a_running_process_has_no_status_and_is_not_collected(nursery):
    process = nursery.fork()
    assert process.exit_status() is None and process.reap() is None and process.pinned


def test_a_worker_that_was_killed_with_its_zygote_is_told_as_lost_and_never_as_none(nursery, monkeypatch, eventually):
    process = nursery.fork()
    os.kill(nursery.zygote.pid, signal.SIGKILL)
    eventually(lambda: not nursery.zygote.lives())
    assert process.exit_status() is None and running(process.pid) and not process.pinned
    monkeypatch.setattr(procs, "wait_status", lambda pid: None)   # as where init was quicker
    os.kill(process.pid, signal.SIGKILL)
    status = eventually(process.exit_status)
    assert status.code is None and status.signal is None and "lost with the forker" in status.note
    assert tree.end(process, nonce=process.nonce).status == status


def test_a_lost_zygotes_worker_is_ended_by_its_mark_alone(nursery, eventually):
    process = nursery.fork()
    os.kill(nursery.zygote.pid, signal.SIGKILL)
    eventually(lambda: not nursery.zygote.lives())
    assert tree.end(process, nonce=process.nonce).status is not None and not running(process.pid)


def test_ending_a_zygote_leaves_its_workers_alone(nursery):
    process = nursery.fork()
    nursery.zygote.end()
    assert running(process.pid) and procs.row(nursery.zygote.pid) is None


def test_a_retired_zygote_goes_with_the_last_worker_that_it_collects(nursery):
    one, other = nursery.fork(), nursery.fork()
    nursery.zygote.retire()
    assert tree.end(one, nonce=one.nonce).status == ExitStatus(signal=9) and running(nursery.zygote.pid)
    assert tree.end(other, nonce=other.nonce).status == ExitStatus(signal=9) and procs.row(nursery.zygote.pid) is None
    assert nursery.zygote.ended


def test_a_zygote_is_not_closed_under_those_who_wait_for_it_although_the_host_slept(nursery, monkeypatch):
    warmed = nursery.zygote.warmed = threading.Event()
    warmed.wait = night_in(monkeypatch, "process.zygote").in_first(warmed.wait)
    threading.Timer(0.1, warmed.set).start()
    nursery.zygote.end(20.0)
    assert warmed.is_set() and nursery.zygote.ended


def test_a_fork_that_the_host_gives_up_starts_nothing(nursery, monkeypatch):
    monkeypatch.setattr(records, "add_process", _fails)
    with pytest.raises(errors.SpawnFailed):
        nursery.fork()
    monkeypatch.undo()
    assert len(carriers(nursery.zygote.nonce)) == 1 and nursery.zygote.serves
    assert running(nursery.fork().pid)


def _fails(*args: object, **more: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def test_a_dead_zygote_says_so_and_forks_nothing(nursery, eventually):
    os.kill(nursery.zygote.pid, signal.SIGKILL)
    eventually(lambda: not nursery.zygote.lives())
    with pytest.raises(ForkFailed, match="signal 9"):
        nursery.fork()


def test_a_stopped_zygote_is_given_up_after_its_time(nursery, monkeypatch):
    monkeypatch.setattr(zygote, "ANSWER", 0.2)
    os.kill(nursery.zygote.pid, signal.SIGSTOP)
    with pytest.raises(ForkFailed, match="does not answer"):
        nursery.fork()


def test_the_records_of_a_worker_and_its_zygote_tell_who_is_who(nursery):
    process = nursery.fork()
    told = records.read(process.run_folder / records.NAME)
    assert (told.pid, told.nonce, told.zygote) == (process.pid, process.nonce, nursery.zygote.nonce)
    own = records.read(nursery.zygote.process.run_folder / records.NAME)
    assert (own.pid, own.nonce, own.zygote, own.generation) == (nursery.zygote.pid, nursery.zygote.nonce, "", 0)


def test_a_record_without_a_zygote_is_one_that_an_older_version_wrote(tmp_path):
    record = records.expected(nonce="n", host_nonce="h", env="a", generation=1, exe="/e")
    path = records.write(tmp_path, record)
    facts = json.loads(path.read_text())
    del facts["zygote"]
    path.write_text(json.dumps(facts) + "\n")
    assert records.read(path) == record


def test_a_launch_that_starts_another_program_is_nobodys_to_fork(host):
    endpoint = SocketEndpoint()
    it = wanted(host, endpoint)
    assert zygote.make_of(it) is not None
    assert zygote.make_of(replace(it, argv=("/bin/sh", "-c", "true"))) is None
    assert zygote.make_of(replace(it, variables={**it.variables, "LD_PRELOAD": "/x.so"})) != zygote.make_of(it)
    endpoint.close()


CALLS: list[tuple[object, str]] = [
    (os, "pipe"), (os, "open"), (os, "write"), (os, "rename"), (os, "pidfd_open"), (os, "set_blocking"), (os, "waitid"), (os, "killpg"),
    (os, "listdir"), (fcntl, "fcntl"), (socket, "send_fds"),
]


@pytest.mark.row("F22")
@pytest.mark.parametrize(("module", "name"), CALLS, ids=[name for _, name in CALLS])
def test_any_call_of_a_fork_and_a_kill_may_fail_once_without_a_leak_or_a_stranger_error(nursery, module, name):
    lifeline.works()
    nth = Nth(module, name)
    for number in nth.numbers():
        before = set(os.listdir("/proc/self/fd"))
        endpoint = SocketEndpoint()
        it = wanted(nursery.host, endpoint)
        begun_and_killed(nursery.zygote.fork, it, nth.armed(number, errno.EAGAIN))
        endpoint.close()
        tree.end_carriers(it.nonce)   # as the pool does for a birth that came to nothing
        assert not carriers(it.nonce) and set(os.listdir("/proc/self/fd")) == before
    assert number > 1
