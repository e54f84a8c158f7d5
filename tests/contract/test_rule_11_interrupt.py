"""Rule 11: an interrupt ends one call and no other: at the next chance in Python code, by a kill after the grace."""

import random
import threading
import time
from pathlib import Path

import pytest

from comfy_env import errors
from comfy_env.testing.audit import alive
from comfy_env.testing.stage import LIMIT
from comfy_env.worker.wire.kinds import Kind
from tests.contract.worlds import REAL, over


def test_an_interrupt_ends_the_running_call_and_keeps_the_worker(stage):
    held = stage.held()
    assert stage.pool.interrupt(stage.plan)
    assert isinstance(held.exception(LIMIT), errors.Interrupted)
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1


@over("in-process", *REAL)
def test_a_loop_in_python_is_ended(stage, eventually):
    call = stage.begin("jobs:spin")
    eventually(lambda: stage.pool.seats() and stage.state() == "busy" and stage.pool.interrupt(stage.plan))
    assert isinstance(call.exception(LIMIT), errors.Interrupted)
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1


@over(*REAL)
def test_a_sleep_of_days_is_ended_at_once(stage, eventually, load, record_property):
    stage.serve()
    call = stage.begin("jobs:sleep_on")
    eventually(lambda: stage.state() == "busy")
    began = time.monotonic()
    assert stage.pool.interrupt(stage.plan)
    assert isinstance(call.exception(LIMIT), errors.Interrupted)
    took = time.monotonic() - began
    record_property("interrupt of a sleep (s)", round(took, 4))
    assert took < load(0.5)
    assert stage.record.generation == 1


@over(*REAL)
def test_a_call_in_native_code_that_holds_the_gil_is_ended_with_its_worker_after_the_grace(stage, eventually, load):
    stage.limited(interrupt_grace=0.4)
    mark = stage.folder / "in native code"
    call = stage.begin("jobs:hold_the_gil_whatever_comes", str(mark))
    eventually(mark.exists)
    began = time.monotonic()
    assert stage.pool.interrupt(stage.plan)
    with pytest.raises(errors.Interrupted) as caught:
        call.result(LIMIT)
    assert 0.4 <= time.monotonic() - began < load(2.0)
    assert "0.4 s" in caught.value.message
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 2


@over(*REAL)
def test_a_call_that_heeds_no_interrupt_takes_its_grandchild_with_it(stage, eventually):
    stage.limited(interrupt_grace=0.3)
    note = stage.folder / "pids"
    call = stage.begin("jobs:spin_with_a_grandchild", str(note))
    ready = Path(f"{note}.ready")
    eventually(ready.exists)
    pids = [int(word) for word in ready.read_text().split()]
    assert all(alive(pid) for pid in pids)
    assert stage.pool.interrupt(stage.plan)
    assert isinstance(call.exception(LIMIT), errors.Interrupted)
    eventually(lambda: not any(alive(pid) for pid in pids), what="worker and grandchild are gone")
    assert stage.call("add", 1, 1) == 2


@over("scripted")
def test_the_grace_is_counted_by_the_pools_clock(timed):
    timed.backend.deaf = True
    held = timed.held()
    assert timed.pool.interrupt(timed.plan)
    timed.advance(4.9)
    assert not held.done()
    assert timed.pool.interrupt(timed.plan), "asking again does not start the grace anew"
    timed.advance(0.2)
    assert isinstance(held.exception(LIMIT), errors.Interrupted)


def test_a_call_that_waits_for_its_workers_birth_is_ended_at_once(stage, eventually):
    gate = threading.Event()
    stage.spy.before["verify"] = lambda process: gate.wait(LIMIT)
    calls = [stage.start("add", number) for number in range(3)]
    eventually(lambda: stage.pool.seats() and len(stage.seat.env.ledger.waiting) == 3)
    assert stage.pool.interrupt(stage.plan)
    assert {type(call.exception(LIMIT)) for call in calls} == {errors.Interrupted}
    gate.set()
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1, "the birth went on"


def test_an_interrupt_of_the_running_call_leaves_those_that_wait(stage, eventually):
    held = stage.held()
    waiting = [stage.start("add", number) for number in range(4)]
    eventually(lambda: len(stage.seat.env.ledger.waiting) == 4)
    assert stage.pool.interrupt(stage.plan)
    assert isinstance(held.exception(LIMIT), errors.Interrupted)
    assert [call.result(LIMIT) for call in waiting] == list(range(4))


def test_an_interrupt_with_nothing_running_hits_nothing(stage):
    stage.serve()
    assert stage.pool.interrupt(stage.plan) is False
    assert stage.call("add", 1, 1) == 2


def test_an_interrupt_that_arrives_late_never_hits_the_next_call(stage):
    for number in range(100):
        worker = stage.seat.worker if stage.pool.seats() else None
        if worker is not None:
            worker.session.interrupt(number)
        assert stage.call("add", number, 1) == number + 1
    assert stage.record.generation == 1


@over("in-process", *REAL)
def test_an_interrupt_that_overtakes_its_call_still_ends_it(stage):
    """Asked between the host's acceptance and the worker's begin, where the side lane is faster than the main lane."""
    stage.serve()
    session = stage.seat.worker.session
    real = session.call

    def overtaken(message, **more):
        assert stage.pool.interrupt(stage.plan)
        session.side(Kind.SIDE_PING, {}, time.monotonic() + 5)
        return real(message, **more)

    session.call = overtaken
    assert isinstance(stage.begin("jobs:nap").exception(LIMIT), errors.Interrupted)
    session.call = real
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1


@over("in-process", *REAL)
@pytest.mark.deadline(240)
def test_500_interrupts_at_random_moments_never_end_a_call_they_were_not_asked_for(stage, record_property):
    """Calls of random length, one after the other; each that is interrupted must have been running while somebody asked."""
    rng = random.Random(53)
    stage.serve()
    asked, over_now = [], threading.Event()
    loops = 500

    def ask():
        mine = random.Random(54)
        while len(asked) < loops:
            time.sleep(mine.random() * 0.004)
            began = time.monotonic()
            if stage.pool.interrupt(stage.plan):
                asked.append((began, time.monotonic()))
        over_now.set()

    asker = stage.on_a_thread(ask)
    interrupted, done = [], 0
    while not over_now.is_set():
        began = time.monotonic()
        try:
            assert stage.pool.call(stage.plan, "jobs:nap_for", rng.random() * 0.003) == "rested"
            done += 1
        except errors.Interrupted:
            interrupted.append((began, time.monotonic()))
    asker.result(LIMIT)
    wrong = [window for window in interrupted if not any(start <= window[1] and end >= window[0] for start, end in asked)]
    record_property("interrupts asked, calls interrupted, calls done", f"{len(asked)}, {len(interrupted)}, {done}")
    assert interrupted and done and len(asked) == loops
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1, "no interrupt cost a worker"
    assert not wrong


@over("in-process", *REAL)
def test_a_progress_hook_that_raises_stops_its_call(stage):
    """Only for what reports: the hook's own exception reaches the caller and the worker lives."""
    stage.serve()

    def stop(progress):
        raise KeyError("enough")

    call = stage.begin("jobs:report_slowly", 500, 0.01, on_progress=stop)
    assert isinstance(call.exception(LIMIT), KeyError)
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1


def test_a_progress_hook_that_raises_stops_a_call_that_never_heeds_it(pool, make_plan):
    """The hook's own exception reaches the caller, after the grace at the latest."""
    from comfy_env import CallOptions

    plan = make_plan("deaf", limits={"interrupt_grace": 0.3})

    def stop(progress):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        pool.call(plan, "jobs:report_then_hold_the_gil", options=CallOptions(on_progress=stop))
    assert pool.call(plan, "jobs:add", 1, 1) == 2
    assert pool.record(plan).generation == 2
