"""Rule 16: every death goes through one kill, the failed call is answered before it, and only then is there a successor."""

import contextlib
import gc
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.process import procs
from comfy_env.testing.audit import alive
from comfy_env.testing.stage import LIMIT, needs
from comfy_env.values import Killed
from tests.contract.worlds import REAL, over, stop


@needs("killable")
def test_the_call_is_answered_at_once_and_the_kill_goes_on_behind_it(stage):
    gate, reached = threading.Event(), threading.Event()
    stage.spy.before["kill"] = lambda process: reached.set() or gate.wait(LIMIT)
    stage.serve()
    with pytest.raises(errors.WorkerCrashed):
        stage.call("die", "kill")
    assert reached.wait(LIMIT) and stage.state() == "closing"
    next_call = stage.start("add", 1)
    assert stage.spy.spawns == 1, "no successor while the tree is not gone"
    gate.set()
    assert next_call.result(LIMIT) == 1
    assert stage.record.generation == 2


def test_one_kill_is_enough_whatever_comes_while_it_goes_on(stage):
    """A crash, then a kill by hand and a change of the sources: one death, one verb, one successor."""
    gate, reached = threading.Event(), threading.Event()
    stage.serve()
    stage.spy.before["kill"] = lambda process: reached.set() or gate.wait(LIMIT)
    killer = stage.on_a_thread(stage.pool.kill, stage.plan)
    assert reached.wait(LIMIT)
    stage.pool.sources_changed(stage.plan)
    again = stage.on_a_thread(stage.pool.kill, stage.plan)
    gate.set()
    assert killer.result(LIMIT) and again.result(LIMIT)
    assert stage.spy.told.count("kill") == 1
    assert stage.call("add", 1, 1) == 2 and stage.record.generation == 2


@over(*REAL)
def test_no_process_of_the_tree_is_left_and_none_is_a_zombie(stage, eventually):
    stage.serve()
    worker, child = stage.record.pid, stage.call("with_child")
    stage.pool.kill(stage.plan)
    assert not alive(worker) and not os.path.exists(f"/proc/{worker}"), "reaped"
    eventually(lambda: not alive(child))


@over(*REAL)
def test_a_successor_is_started_when_the_dead_ones_processes_are_gone_and_its_status_is_collected(stage):
    stage.serve()
    worker, child = stage.record.pid, stage.call("with_child")
    found = []
    stage.spy.before["spawn"] = lambda launch: found.append((os.path.exists(f"/proc/{worker}"), alive(child)))
    with pytest.raises(errors.WorkerCrashed):
        stage.call("die", "kill")
    assert stage.call("add", 1, 1) == 2
    assert found == [(False, False)], "a number that is still taken is a process whose memory may not be back"


# ---------------------------------------------------------------- what is left when the successor is born

MIB = 1 << 20


def shared_files(pid):
    """Return the segments of shared memory a process has open or mapped, by number."""
    found = set()
    with contextlib.suppress(OSError):   # it is gone, or not ours to look at
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "memfd:comfy_env" in line:
                found.add(int(line.split()[4]))
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):   # closed since the listing
                if "memfd:comfy_env" in os.readlink(link):
                    found.add(link.stat().st_ino)
    return found


def holders(files):
    """Return who keeps any of these segments, and which: one that nobody does is memory no more."""
    found = {pid: shared_files(pid) & files for pid in procs.pids()}
    return {pid: kept for pid, kept in found.items() if kept}


def charged(files):
    """Return the bytes that segments which this process has open take up."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):   # closed since the listing
            facts = link.stat()
            found[facts.st_ino] = facts.st_blocks * 512
    return sum(size for file, size in found.items() if file in files)


class Remains:
    """What a worker had, and what of it is there when the next one is about to be spawned."""

    def __init__(self, stage, pid):
        self.pid = pid
        self.nonce = stage.seat.worker.launch.nonce
        self.files = shared_files(pid)
        self.found = []
        stage.spy.before["spawn"] = lambda launch: self.found.append(self.look())

    def look(self):
        return {"processes": self.processes(), "its status to be collected": os.path.exists(f"/proc/{self.pid}"),
                "segments": holders(self.files)}

    def processes(self):
        tree = [row for row in procs.rows() if self.pid in (row.pid, row.group, row.session) or procs.carries(row.pid, self.nonce)]
        return [row for row in tree if not row.dead]


NOTHING = {"processes": [], "its status to be collected": False, "segments": {}}


def kill_it(stage, pid):
    assert stage.pool.kill(stage.plan)


def crash_it_while_another_call_waits(stage, pid):
    """The successor is wanted before the worker's end has begun."""
    held = stage.held()
    waiting = stage.start("add", 1)
    while not stage.seat.env.ledger.waiting:
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    assert isinstance(held.exception(LIMIT), errors.WorkerCrashed)
    assert waiting.result(LIMIT) == 1


@over(*REAL)
@pytest.mark.parametrize("end", [kill_it, crash_it_while_another_call_waits])
def test_when_the_successor_is_spawned_nothing_of_the_worker_is_left(stage, end, eventually):
    pid, family = stage.call("whoami")["pid"], {stage.call("with_child"), stage.run("jobs:start_escapee")}
    stage.run("jobs:keep_memory", 256)
    remains = Remains(stage, pid)
    eventually(lambda: {pid, *family} <= {row.pid for row in remains.processes()}, what="all of them show their marks")
    assert procs.resident(pid) > 256 * MIB
    assert holders(remains.files).keys() == {pid, os.getpid()} and remains.files
    end(stage, pid)
    assert stage.call("add", 1, 1) == 2 and stage.record.generation == 2
    assert remains.found == [NOTHING]


@over("venv")
def test_of_a_dead_workers_memory_only_what_the_host_looks_at_is_left_when_its_successor_is_spawned(stage):
    pytest.importorskip("numpy")
    seen, dropped = stage.run("numpy:ones", MIB // 8), stage.run("numpy:ones", 4 * MIB)
    pid = stage.call("whoami")["pid"]
    remains = Remains(stage, pid)
    del dropped
    before = charged(remains.files)
    bytes_left = []
    look = stage.spy.before["spawn"]
    stage.spy.before["spawn"] = lambda launch: bytes_left.append(charged(remains.files)) or look(launch)
    stage.pool.kill(stage.plan)
    assert stage.call("add", 1, 1) == 2
    assert [left["segments"].keys() for left in remains.found] == [{os.getpid()}]
    assert before > 33 * MIB
    assert len(bytes_left) == 1 and MIB <= bytes_left[0] < 2 * MIB, "what the host let go of is given back, what it has is not"
    assert seen.sum() == MIB // 8
    del seen
    gc.collect()
    assert holders(remains.files) == {} and charged(remains.files) == 0


@over("venv")
def test_what_the_host_lets_go_of_after_its_workers_death_is_given_back_at_once(stage):
    pytest.importorskip("numpy")
    first, second = stage.run("numpy:ones", MIB // 8), stage.run("numpy:ones", 4 * MIB)
    files = shared_files(stage.call("whoami")["pid"])
    stage.pool.kill(stage.plan)
    assert charged(files) >= 33 * MIB
    del second
    gc.collect()
    assert MIB <= charged(files) < 2 * MIB and first.sum() == MIB // 8


@over(*REAL)
def test_a_stopped_worker_in_mid_call_is_ended_all_the_same(stage):
    stage.limited(call_silence=0.4)
    pid = stage.call("whoami")["pid"]
    call = stage.begin("jobs:sleep", 600)
    stop(pid)
    assert isinstance(call.exception(LIMIT), errors.CallSilent)
    assert stage.call("whoami")["pid"] != pid and not alive(pid)


@over(*REAL)
def test_a_crash_is_told_within_milliseconds_of_its_exit(stage, load, record_property):
    took = []
    for _ in range(8):
        pid = stage.call("whoami")["pid"]
        call = stage.begin("jobs:sleep", 600)
        while stage.state() != "busy":
            time.sleep(0.001)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert isinstance(call.exception(LIMIT), errors.WorkerCrashed)
        took.append(time.monotonic() - began)
    record_property("crash told after (s), median", round(sorted(took)[4], 4))
    assert sorted(took)[4] < load(0.1)


@needs("killable")
def test_a_backend_whose_kill_raises_or_hangs_loses_no_worker(stage):
    """The core ends what the backend leaves, and its own kill is not held up for longer than the kill's limit."""
    stage.limited(kill=0.3)
    stage.serve()
    process = stage.spy.processes[0]
    stage.spy.after["kill"] = lambda killed: {}["the backend's own defect"]
    assert stage.pool.kill(stage.plan)
    assert process.exit_status() is not None
    assert stage.call("add", 1, 1) == 2 and stage.record.generation == 2


@over(*REAL)
def test_a_backend_that_forgets_to_kill_loses_no_worker(stage, monkeypatch):
    monkeypatch.setattr("comfy_env.backends.local.tree", SimpleNamespace(end=lambda process, **more: Killed()))
    pid = stage.call("whoami")["pid"]
    assert stage.pool.kill(stage.plan)
    assert not alive(pid)
    assert stage.call("add", 1, 1) == 2


def test_a_shelf_that_raises_keeps_no_worker_from_being_ended(stage):
    stage.serve()
    stage.seat.post(events.StandInsChanged(1, 1))
    stage.shelf.quarantine = lambda env, generation: {}["not registered"]
    assert stage.pool.kill(stage.plan)
    assert stage.settled() and stage.spy.processes[0].exit_status() is not None
    assert stage.call("add", 1, 1) == 2
