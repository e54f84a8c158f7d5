"""Rule 7: one call at a time on the main lane; callbacks are answered in mid-call."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from comfy_env import CallOptions, errors


def test_callers_of_one_environment_are_served_one_after_the_other(pool, plan):
    running, most, lock = [], [], threading.Lock()

    def note(entering):
        with lock:
            running.append(1) if entering else running.pop()
            most.append(len(running))

    options = CallOptions(callbacks={"note": note})

    def ask(number):
        pool.call(plan, "jobs:call_back", "note", True, options=options)
        pool.call(plan, "jobs:call_back", "note", False, options=options)

    pool.call(plan, "jobs:pid")
    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(lambda n: pool.call(plan, "jobs:add", n, n), range(200)))
    assert values == [2 * n for n in range(200)]
    ask(0)
    assert max(most) == 1


def test_a_callback_runs_on_the_asking_thread_and_returns_its_value(pool, plan):
    seen = []

    def host(value):
        seen.append(threading.get_ident())
        return value * 2

    assert pool.call(plan, "jobs:call_back", "host", 21, options=CallOptions(callbacks={"host": host})) == 42
    assert seen == [threading.get_ident()]


def test_a_callback_that_raises_reaches_the_worker_as_an_error(pool, plan):
    def host():
        raise KeyError("not there")

    with pytest.raises(errors.NodeRaised, match="not there"):
        pool.call(plan, "jobs:call_back", "host", options=CallOptions(callbacks={"host": host}))
    assert pool.call(plan, "jobs:add", 1, 2) == 3
    assert pool.record(plan).generation == 1


def test_a_callback_may_call_another_environment(pool, plan, make_plan):
    other = make_plan("other")
    options = CallOptions(callbacks={"ask": lambda: pool.call(other, "jobs:pid")})
    assert pool.call(plan, "jobs:call_back", "ask", options=options) == pool.record(other).pid


def test_a_callback_that_calls_its_own_environment_is_refused_instead_of_waiting_for_ever(pool, plan):
    options = CallOptions(callbacks={"ask": lambda: pool.call(plan, "jobs:pid")})
    with pytest.raises(errors.NodeRaised, match="would wait for itself"):
        pool.call(plan, "jobs:call_back", "ask", options=options)


def test_a_release_is_answered_while_the_worker_waits_for_its_callback(pool, plan):
    receipts = []
    options = CallOptions(callbacks={"release": lambda: receipts.append(pool.release(plan))})
    pool.call(plan, "jobs:call_back", "release", options=options)
    assert receipts and receipts[0].held >= 0


def test_a_release_gives_up_by_name_while_the_worker_computes(pool, make_plan, tmp_path):
    plan = make_plan("busy", limits={"command_lock": 0.2})
    mine, other = tmp_path / "mine", tmp_path / "other"
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(pool.call, plan, "jobs:touch_then_wait_for", str(mine), str(other), 30.0)
        while not mine.exists():
            assert not call.done()
        with pytest.raises(errors.LaneBusy):
            pool.release(plan)
        other.touch()
        assert call.result(30)


def test_progress_reaches_the_asking_thread_in_order(pool, plan):
    seen = []
    pool.call(plan, "jobs:progress", 5, options=CallOptions(on_progress=seen.append))
    assert seen[-1].value == 5 and seen[-1].total == 5
    assert [step.value for step in seen] == sorted(step.value for step in seen)


def test_a_caller_that_waits_too_long_leaves_and_the_others_are_served(pool, plan, tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(pool.call, plan, "jobs:touch_then_wait_for", str(mine), str(other), 30.0)
        while not mine.exists():
            assert not call.done()
        with pytest.raises(errors.CallWithdrawn):
            pool.call(plan, "jobs:pid", options=CallOptions(wait=0.05))
        other.touch()
        assert call.result(30)
    assert pool.call(plan, "jobs:add", 1, 1) == 2
