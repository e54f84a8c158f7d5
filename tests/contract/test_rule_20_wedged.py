"""Rule 20: a worker that will not die has no twin, keeps the host responsive, and every message says which one it is."""

import os
import signal
import time
from dataclasses import replace

import pytest

from comfy_env import errors
from comfy_env.pool import endings
from comfy_env.process import tree
from comfy_env.testing.audit import wait_until
from comfy_env.testing.stage import LIMIT
from comfy_env.values import ExitStatus, Killed
from tests.contract.worlds import REAL, over, stop

STUCK = Killed((), None, "still alive after SIGKILL: 4711 (state D)")


def wedge(stage):
    """Kill a worker that does not even end with its lanes."""
    if stage.spy.processes[0].pid:
        stop(stage.spy.processes[0].pid)
    stage.on_a_thread(stage.pool.kill, stage.plan)


@pytest.fixture
def undying(stage, world, monkeypatch):
    """A worker on a device that neither its backend's kill nor the core's can end, until the test says so."""
    stage.plan = replace(stage.plan, device="cuda:1")
    stage.limited(kill=0.3)
    stage.serve()
    if world == "scripted":
        process = stage.spy.processes[0]
        monkeypatch.setattr(process, "end", lambda status: None)
    else:
        monkeypatch.setattr("comfy_env.process.tree.end", lambda process, **more: STUCK)
    yield stage
    monkeypatch.undo()
    process = stage.spy.processes[0]
    if process.exit_status() is None:
        os.kill(process.pid, signal.SIGKILL) if process.pid else process.end(ExitStatus(signal=9))
    wait_until(lambda: process.exit_status(), LIMIT)
    if stage.seat.env.ledger.closed:  # nobody watches it any more
        if process.pid:
            tree.end(process, nonce=process.nonce)
        endings.release_handles(stage.pool._house, stage.seat.worker)
    else:
        wait_until(lambda: stage.state() not in ("wedged", "closing"), LIMIT)


@over("scripted", *REAL)
def test_calls_to_it_fail_at_once_by_name_and_no_twin_is_started(undying, eventually):
    wedge(undying)
    eventually(lambda: undying.state() == "wedged")
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(errors.Wedged) as caught:
            undying.call("add", 1)
        assert time.monotonic() - began < 1.0
    assert "generation 1" in caught.value.message and "cuda:1" in caught.value.message
    assert caught.value.pid is None or f"pid {caught.value.pid}" in caught.value.message
    assert caught.value.hint
    assert undying.spy.spawns == 1


@over("scripted", *REAL)
def test_another_environment_is_served_and_the_record_shows_the_wedged_one(undying, eventually):
    wedge(undying)
    eventually(lambda: undying.state() == "wedged")
    assert undying.record.state == "wedged" and undying.record.pid == undying.spy.processes[0].pid
    assert undying.call("add", 1, 1, plan=undying.other("healthy")) == 2


@over("scripted", *REAL)
def test_those_who_wait_for_it_are_told(undying, eventually):
    held = undying.held()
    waiting = [undying.start("add", number) for number in range(3)]
    eventually(lambda: len(undying.seat.env.ledger.waiting) == 3)
    wedge(undying)
    undying.go()
    assert isinstance(held.exception(LIMIT), errors.CallFailed)
    assert {type(call.exception(LIMIT)) for call in waiting} == {errors.Wedged}


@over(*REAL)
def test_when_it_ends_after_all_the_next_call_is_served(undying, eventually, monkeypatch):
    wedge(undying)
    eventually(lambda: undying.state() == "wedged")
    monkeypatch.undo()
    os.kill(undying.spy.processes[0].pid, signal.SIGKILL)
    eventually(undying.settled)
    assert undying.call("add", 1, 1) == 2
    assert undying.record.generation == 2


@over("scripted", *REAL)
def test_closing_is_not_held_up_by_it(undying, eventually, load):
    wedge(undying)
    eventually(lambda: undying.state() == "wedged")
    began = time.monotonic()
    undying.pool.close()
    assert time.monotonic() - began < load(8.0)


@over("in-process")
def test_a_thread_that_cannot_be_killed_wedges_its_environment_until_it_ends_by_itself(stage, eventually):
    held = stage.held("hold_native")
    stage.pool.kill(stage.plan)
    assert isinstance(held.exception(LIMIT), errors.CallFailed)
    with pytest.raises(errors.Wedged, match="generation 1 still runs in this process") as caught:
        stage.call("add", 1)
    assert "restart ComfyUI" in caught.value.hint
    stage.go()
    eventually(stage.settled)
    assert stage.call("add", 1, 1) == 2 and stage.record.generation == 2
