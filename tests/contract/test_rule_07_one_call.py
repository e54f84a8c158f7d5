"""Rule 7: one call at a time on the main lane; commands wait for it, or are served while the worker waits for a callback."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from comfy_env import CallOptions, errors
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import REAL, over


def test_one_call_at_a_time_has_the_lane(stage):
    futures = [stage.start("alone", str(stage.folder)) for _ in range(16)]
    assert all(future.result(LIMIT) for future in futures)
    assert stage.spy.spawns == 1


def test_calls_are_served_in_the_order_they_came(stage, eventually):
    held = stage.held()
    order = []
    futures = []
    for number in range(6):
        futures.append(stage.start("add", number))
        futures[-1].add_done_callback(lambda future: order.append(future.result()))
        eventually(lambda number=number: len(stage.seat.env.ledger.waiting) == number + 1)
    stage.go()
    held.result(LIMIT)
    assert [future.result(LIMIT) for future in futures] == list(range(6))
    assert stage.record.calls == 7


@over("in-process", *REAL)
def test_a_command_gives_up_by_name_at_its_limit_while_a_call_computes(stage):
    stage.limited(command_lock=0.2)
    held = stage.held()
    with pytest.raises(errors.LaneBusy) as caught:
        stage.pool.release(stage.plan)
    assert "0.2 s" in caught.value.message and caught.value.hint and caught.value.generation == 1
    stage.go()
    assert held.result(LIMIT) == "gone"
    assert stage.call("add", 1, 1) == 2


@over("in-process", *REAL)
def test_a_release_is_answered_while_the_worker_waits_for_its_callback(stage):
    receipts = []
    stage.run("jobs:hold_bytes", 1000)
    stage.run("jobs:call_back", "evict", callbacks={"evict": lambda: receipts.append(stage.pool.release(stage.plan))})
    assert (receipts[0].freed, receipts[0].held) == (1000, 0)
    assert stage.record.held == 0


@over("in-process", *REAL)
def test_two_workers_that_evict_each_other_from_their_callbacks_both_end(stage, load, record_property):
    both = threading.Barrier(2)
    plans = [stage.other("one"), stage.other("two")]
    for plan in plans:
        stage.call("add", 1, plan=plan)

    def evict(other):
        both.wait(LIMIT)
        assert stage.pool.release(other) is not None
        both.wait(LIMIT)
        return "evicted"

    began = time.monotonic()
    futures = [stage.begin("jobs:call_back", "evict", plan=plan, callbacks={"evict": lambda other=other: evict(other)})
               for plan, other in (plans, plans[::-1])]
    assert [future.result(LIMIT) for future in futures] == ["evicted"] * 2
    took = time.monotonic() - began
    record_property("two evictions of each other (s)", round(took, 4))
    assert took < load(stage.pool.settings.command_lock / 3), "not the time for which a command waits for a lane"


@over("in-process", *REAL)
def test_a_release_from_another_thread_goes_ahead_while_a_callback_is_served(stage):
    inside, done = threading.Event(), threading.Event()

    def slow():
        inside.set()
        assert done.wait(LIMIT)

    call = stage.begin("jobs:call_back", "slow", callbacks={"slow": slow})
    assert inside.wait(LIMIT)
    assert stage.pool.release(stage.plan) is not None
    done.set()
    call.result(LIMIT)


def test_a_release_that_fails_says_so_and_does_not_show_an_older_receipt(stage):
    stage.serve()
    assert stage.pool.release(stage.plan) is not None
    stage.spy.after["release"] = lambda receipt: "thanks"
    with pytest.raises(errors.BackendError, match="release returned"):
        stage.pool.release(stage.plan)
    stage.spy.after.clear()
    assert stage.pool.release(stage.plan).held == 0
    assert stage.record.generation == 1


@over("scripted")
def test_a_release_asked_for_beside_another_one_costs_that_one_no_receipt(stage, monkeypatch):
    """The second is under way by the time the first looks at its receipt."""
    stage.serve()
    real, gate, reached, others = stage.seat.wait_for, threading.Event(), threading.Event(), []

    def waited(holds, seconds):
        came = real(holds, seconds)
        if not others:
            stage.spy.before["release"] = lambda process: reached.set() or gate.wait(LIMIT)
            others.append(stage.on_a_thread(stage.pool.release, stage.plan))
            assert reached.wait(LIMIT)
        return came

    monkeypatch.setattr(stage.seat, "wait_for", waited)
    assert stage.pool.release(stage.plan) is not None
    gate.set()
    assert others[0].result(LIMIT) is not None


def test_a_worker_that_is_being_born_is_asked_for_nothing(stage, eventually):
    gate = threading.Event()
    stage.spy.before["verify"] = lambda process: gate.wait(LIMIT)
    call = stage.start("add", 1)
    eventually(lambda: stage.pool.seats() and stage.state() == "proving")
    assert stage.pool.release(stage.plan) is None
    gate.set()
    assert call.result(LIMIT) == 1


@over(*REAL)
def test_a_worker_killed_under_its_callback_fails_the_call_however_the_answer_meets_it(stage):
    """The answer of the callback goes to a worker that is dying: at each moment the call ends by name."""
    for moment in range(12):
        pid = stage.call("whoami")["pid"]

        def end(pid=pid, moment=moment):
            os.kill(pid, signal.SIGKILL)
            time.sleep(moment % 4 / 1000)

        with pytest.raises(errors.WorkerCrashed, match="SIGKILL"):
            stage.run("jobs:call_back", "end", callbacks={"end": end})


@over(*REAL)
def test_a_worker_that_takes_no_answer_is_ended_at_the_silence_limit(stage):
    """Its asker is stuck writing a large answer; that must keep nobody from ending the worker."""
    pid = stage.call("whoami")["pid"]

    def answer():
        os.kill(pid, signal.SIGSTOP)
        return b"x" * 30_000_000

    with pytest.raises(errors.CallSilent):
        stage.run("jobs:call_back", "answer", callbacks={"answer": answer}, silence=0.5)
    assert stage.call("add", 1, 1) == 2


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


@contextmanager
def a_call_that_runs(pool, plan, folder):
    """Have the plan's worker compute for as long as this lasts."""
    mine, other = folder / "mine", folder / "other"
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(pool.call, plan, "jobs:touch_then_wait_for", str(mine), str(other), 30.0)
        while not mine.exists():
            assert not call.done()
        yield
        other.touch()
        assert call.result(30)


def test_a_release_gives_up_by_name_while_the_worker_computes(pool, make_plan, tmp_path):
    plan = make_plan("busy", limits={"command_lock": 0.2})
    with a_call_that_runs(pool, plan, tmp_path):
        with pytest.raises(errors.LaneBusy):
            pool.release(plan)


def test_progress_reaches_the_asking_thread_in_order(pool, plan):
    seen = []
    pool.call(plan, "jobs:progress", 5, options=CallOptions(on_progress=seen.append))
    assert seen[-1].value == 5 and seen[-1].total == 5
    assert [step.value for step in seen] == sorted(step.value for step in seen)


def test_a_caller_that_waits_too_long_leaves_and_the_others_are_served(pool, plan, tmp_path):
    with a_call_that_runs(pool, plan, tmp_path):
        with pytest.raises(errors.CallWithdrawn):
            pool.call(plan, "jobs:pid", options=CallOptions(wait=0.05))
    assert pool.call(plan, "jobs:add", 1, 1) == 2


def test_a_refused_call_from_a_callback_leaves_the_lane_to_the_next_caller(pool, plan):
    options = CallOptions(callbacks={"ask": lambda: pool.call(plan, "jobs:pid")})
    with pytest.raises(errors.NodeRaised, match="would wait for itself"):
        pool.call(plan, "jobs:call_back", "ask", options=options)
    assert pool.call(plan, "jobs:add", 1, 1, options=CallOptions(wait=20)) == 2


def test_a_callback_answer_the_worker_cannot_read_fails_that_callback_and_no_later_call(pool, make_plan, pythons):
    """A value of a class that only the host can import: the worker says so, and serves on."""
    plan = make_plan("reads", pythons[min(pythons)])
    options = CallOptions(callbacks={"odd": lambda: errors.ComfyEnvError("a class of the host's own")})
    with pytest.raises(errors.CallFailed):
        pool.call(plan, "jobs:call_back", "odd", options=options)
    assert pool.call(plan, "jobs:add", 1, 1, options=CallOptions(wait=20)) == 2
