"""F1 to F7: the host dies, forks, or becomes another program, at any moment; so does a worker or a wrapper."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.errors import CallFailed
from comfy_env.hooks import hookimpl
from comfy_env.process import procs
from tests.faults.hosts import BORN, PROMISED, Host, hosts_of, sweep_finds, twins
from tests.process.kit import running

pytestmark = pytest.mark.skipif(not procs.LINUX, reason="proven on Linux")

HOST = """
from dataclasses import replace
mode = arguments[0]

class Tell(Born):
    @hookimpl
    def comfy_env_launch(self, launch):
        if mode == "at once":
            tell(host_nonce=launch.host_nonce, family=[], forked=0)
        if mode == "wrapped":
            return replace(launch, argv=("/bin/sh", "-c", '"$@"; true', "wrapper", *launch.argv))

spy = Tell()
pool, plan = make_pool(wrappers=[spy]), make_plan("a")
if mode == "at once":
    hold(pool, plan)
elif mode == "idle":
    threading.Thread(target=lambda: pool.call(plan, "jobs:pid"), daemon=True).start()
while mode == "idle" and not (pool.record(plan) and pool.record(plan).calls):
    time.sleep(0.005)
family = held(pool, plan) if mode not in ("idle", "at once") else []
forked = os.fork() if mode == "forked" else 0
if mode == "forked" and not forked:
    time.sleep(120)
if mode != "at once":
    tell(host_nonce=spy.nonce, family=[spy.pid, *family], forked=forked)
if mode == "execv":
    os.execv(sys.executable, [sys.executable, __file__, str(folder), "again", str(spy.pid), spy.nonce])
if mode == "again":
    pass
time.sleep(120)
"""

AGAIN = """
if arguments[0] == "again":
    from comfy_env.process import procs
    import time
    old, nonce = int(arguments[1]), arguments[2]
    limit = time.monotonic() + 5
    while (row := procs.row(old)) and not row.dead and time.monotonic() < limit:
        time.sleep(0.001)
    zombie = procs.row(old) is not None
    pool, plan = make_pool(), make_plan("a")
    answer = pool.call(plan, "jobs:echo", 5)
    tell(host_nonce=nonce, answer=answer, zombie_before=zombie, zombie_after=procs.row(old) is not None, pid=pool.record(plan).pid)
    pool.close()
    sys.exit(0)
"""


@pytest.fixture
def host_in(tmp_path, eventually) -> Iterator[Callable[..., tuple[Host, dict]]]:
    """`host_in(mode)` starts a host with a worker and returns it with what it told."""
    with hosts_of(AGAIN + BORN + HOST, tmp_path, eventually) as host_in:
        yield host_in


def nobody_left(host: Host, told: dict) -> bool:
    """Tell whether nobody of a host's is left, nor anybody who is just about to become a worker."""
    family = any(running(pid) for pid in told["family"]) or twins(told["host_nonce"])
    return not family and not any(on_its_way(host.folder, row) for row in procs.rows() if row.pid != told["forked"])


def on_its_way(folder: Path, row: procs.Row) -> bool:
    """A child that was forked and has not become a worker yet has its host's program line; one in mid-exec has none at all."""
    if row.dead or row.pid == os.getpid() or 2 in (row.pid, row.parent):   # 2: the kernel's own
        return False
    with contextlib.suppress(OSError):   # it ended meanwhile
        line = Path(f"/proc/{row.pid}/cmdline").read_bytes()
        return os.fsencode(folder) in line or not line and not procs.environment(row.pid)
    return False


@pytest.mark.parametrize("mode", [
    pytest.param("idle", marks=pytest.mark.row("F1")),
    pytest.param("gil", marks=pytest.mark.row("F2")),
    pytest.param("forked", marks=pytest.mark.row("F5")),
    pytest.param("wrapped", marks=pytest.mark.row("F7")),
])
def test_a_killed_host_takes_its_worker_along_whatever_that_does(host_in, fired, eventually, mode):
    host, told = host_in(mode)
    assert twins(told["host_nonce"])
    host.popen.kill()
    with fired.timed():
        eventually(lambda: nobody_left(host, told), 3 * PROMISED, "the worker's tree is gone")
    fired()
    assert fired.worst < PROMISED or os.getloadavg()[0] > 2
    if mode == "forked":
        assert running(told["forked"])
    host.popen.wait()
    assert sweep_finds(host) == []


@pytest.mark.row("F3")
@pytest.mark.parametrize("times", [10, pytest.param(200, marks=[pytest.mark.long, pytest.mark.deadline(900)])])
def test_a_host_killed_at_a_random_moment_after_a_spawn_leaves_nobody(host_in, fired, eventually, times):
    chance = random.Random(9)
    for _ in range(times):
        host, told = host_in("at once")
        moment = time.monotonic() + chance.uniform(0, 0.3)
        while time.monotonic() < moment:
            time.sleep(0.001)   # the moment itself is what is tried; nothing is waited for
        host.popen.kill()
        host.popen.wait()
        with fired.timed():
            eventually(lambda host=host, told=told: nobody_left(host, told), 3 * PROMISED, "the worker's tree is gone")
        fired()
        assert sweep_finds(host) == []
        host.close()


@pytest.mark.row("F4")
def test_a_host_that_becomes_another_program_loses_its_worker_and_collects_it(host_in, fired, eventually):
    host, _ = host_in("execv")
    told = eventually(lambda: host.told if "answer" in (host.told or {}) else None, 30, "the new life told what it found")
    fired()
    assert told["answer"] == 5 and told["zombie_before"] and not told["zombie_after"]
    assert host.popen.wait(30) == 0 and not twins(told["host_nonce"])


@pytest.mark.row("F4")
def test_a_worker_that_becomes_another_program_is_ended_by_name(ward, fired):
    plan = ward.plan()
    with fired.timed(), pytest.raises(CallFailed) as caught:
        ward.call(plan, "replace_program", 120)
    fired()
    assert caught.value.generation == 1 and "lane" in str(caught.value), caught.value
    assert ward.call(plan, "echo", 1) == 1 and ward.alive() == [ward.pool.record(plan).pid]


@pytest.mark.row("F6")
def test_a_worker_outlives_the_thread_that_made_it_be_born(ward, fired, eventually):
    plan, found = ward.plan(), []
    thread = threading.Thread(target=lambda: found.append(ward.call(plan, "me")))
    thread.start()
    thread.join(30)
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("comfy-env a#1")], what="its birth's threads ended")
    fired()
    assert ward.call(plan, "me") == found[0] and ward.pool.record(plan).generation == 1


class Wrapped:
    """Puts a shell between host and worker, which waits for it."""

    @hookimpl
    def comfy_env_launch(self, launch):
        return replace(launch, argv=("/bin/sh", "-c", '"$@"; true', "wrapper", *launch.argv))


@pytest.mark.row("F7")
def test_a_killed_wrapper_fails_the_call_and_leaves_nobody(make_ward, fired, eventually, tmp_path):
    ward = make_ward(wrappers=(Wrapped(),))
    plan, note = ward.plan(), tmp_path / "note"
    errors: list[CallFailed] = []

    def call() -> None:
        try:
            ward.call(plan, "jobs:hold_the_gil_with_a_grandchild", str(note))
        except CallFailed as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    eventually(Path(f"{note}.ready").exists, 30, "the worker holds the GIL")
    wrapper = ward.pool.record(plan).pid
    assert wrapper not in map(int, Path(f"{note}.ready").read_text().split())
    os.kill(wrapper, signal.SIGKILL)
    with fired.timed():
        thread.join(30)
        eventually(lambda: not ward.alive(), 30, "the wrapped worker and its grandchild are gone")
    fired()
    assert errors and "signal 9" in errors[0].status
    assert ward.call(plan, "echo", 2) == 2
