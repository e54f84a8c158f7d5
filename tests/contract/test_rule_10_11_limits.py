"""Rules 10 and 11: the call limit is about silence; an interrupt ends one call and no other."""

import threading
import time

import pytest

from comfy_env import CallOptions, errors
from comfy_env.worker.wire.kinds import Kind


def test_a_silent_call_is_ended_by_name_with_its_stack(pool, plan):
    pool.call(plan, "jobs:pid")
    with pytest.raises(errors.CallSilent) as caught:
        pool.call(plan, "jobs:sleep", 600, options=CallOptions(silence=0.5))
    assert "jobs.py" in caught.value.stack
    assert pool.call(plan, "jobs:add", 1, 1) == 2
    assert pool.record(plan).generation == 2


def test_a_call_that_reports_progress_outlives_its_silence_limit(pool, plan):
    pool.call(plan, "jobs:pid")
    assert pool.call(plan, "jobs:report_slowly", 8, 0.2, options=CallOptions(silence=0.8)) == 8
    assert pool.record(plan).generation == 1


@pytest.mark.parametrize("target", ["jobs:spin", "jobs:nap"])
def test_an_interrupt_ends_the_running_call_and_keeps_the_worker(pool, plan, eventually, target):
    pid = pool.call(plan, "jobs:pid")
    running = threading.Timer(0, lambda: eventually(lambda: pool.interrupt(plan)))
    running.start()
    with pytest.raises(errors.Interrupted):
        pool.call(plan, target)
    running.join()
    assert pool.call(plan, "jobs:pid") == pid


def test_an_interrupt_of_a_call_that_holds_the_gil_kills_after_the_grace(pool, make_plan, eventually, tmp_path):
    plan = make_plan("deaf", limits={"interrupt_grace": 0.5})
    pool.call(plan, "jobs:pid")
    mark = tmp_path / "in native code"
    running = threading.Timer(0, lambda: eventually(mark.exists) and pool.interrupt(plan))
    running.start()
    with pytest.raises(errors.Interrupted):
        pool.call(plan, "jobs:hold_the_gil", 600, str(mark))
    running.join()
    assert pool.call(plan, "jobs:add", 1, 1) == 2
    assert pool.record(plan).generation == 2


def test_an_interrupt_with_nothing_running_hits_nothing(pool, plan):
    pool.call(plan, "jobs:pid")
    assert pool.interrupt(plan) is False
    assert pool.call(plan, "jobs:add", 1, 1) == 2


def test_an_interrupt_that_overtakes_its_call_still_ends_it(pool, plan):
    """Asked between the host's acceptance and the worker's begin, where the side lane is faster than the main lane."""
    pid = pool.call(plan, "jobs:pid")
    session = pool.seats()[0].worker.session
    real = session.call

    def overtaken(message, **more):
        assert pool.interrupt(plan)
        session.side(Kind.SIDE_PING, {}, time.monotonic() + 5)
        return real(message, **more)

    session.call = overtaken
    try:
        with pytest.raises(errors.Interrupted):
            pool.call(plan, "jobs:nap")
    finally:
        session.call = real
    assert pool.call(plan, "jobs:pid") == pid


def test_an_interrupt_that_comes_too_late_never_hits_the_next_call(pool, plan):
    for late in range(200):
        seat = pool.seats()[0] if pool.seats() else None
        if seat is not None and seat.worker is not None:
            seat.worker.session.interrupt(late)
        assert pool.call(plan, "jobs:add", late, 1) == late + 1
    assert pool.record(plan).generation == 1


def test_a_progress_hook_that_raises_stops_a_call_that_never_heeds_it(pool, make_plan):
    """The hook's own exception reaches the caller, after the grace at the latest."""
    plan = make_plan("deaf", limits={"interrupt_grace": 0.3})

    def stop(progress):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        pool.call(plan, "jobs:report_then_hold_the_gil", options=CallOptions(on_progress=stop))
    assert pool.call(plan, "jobs:add", 1, 1) == 2
    assert pool.record(plan).generation == 2
