"""Rule 16: every death goes through one kill, the failed call is answered before it, and only then is there a successor."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from comfy_env import errors
from comfy_env.lifecycle import events
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
