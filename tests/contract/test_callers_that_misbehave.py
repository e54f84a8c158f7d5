"""A caller's own trouble costs its call and nothing else."""

import dis
import linecache
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from comfy_env import CallOptions, EnvPlan, WorkerPool, errors
from comfy_env.pool import carrier, lanes, performer, seat, tickets
from comfy_env.pool import pool as pools
from comfy_env.testing.audit import wait_until
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import over

SOON = CallOptions(wait=20)


def test_an_exception_whose_class_refuses_to_be_rebuilt_ends_its_call_and_frees_the_lane(pool, plan):
    with pytest.raises(errors.NodeRaised, match="several"):
        pool.call(plan, "jobs:raise_group")
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2
    assert pool.record(plan).generation == 1


class Odd:
    @property
    def __class__(self):
        raise ZeroDivisionError("do not look at me")


def test_an_argument_that_raises_when_it_is_looked_at_is_refused_and_costs_no_worker(pool, plan):
    pool.call(plan, "jobs:pid")
    with pytest.raises(errors.EncodeRefused, match="ZeroDivisionError"):
        pool.call(plan, "jobs:echo", Odd())
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2
    assert pool.record(plan).generation == 1


def test_an_answer_that_raises_when_it_is_looked_at_is_refused_and_costs_no_worker(pool, plan):
    pool.call(plan, "jobs:pid")
    with pytest.raises(errors.EncodeRefused, match="RuntimeError: no arguments"):
        pool.call(plan, "jobs:unreadable", False)
    with pytest.raises(errors.NodeRaised, match="Unreadable"):
        pool.call(plan, "jobs:unreadable", True)
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2
    assert pool.record(plan).generation == 1


def test_callers_that_leave_with_ctrl_c_do_not_park_the_environment(pool, plan):
    def leave():
        raise KeyboardInterrupt

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            pool.call(plan, "jobs:call_back", "leave", options=CallOptions(callbacks={"leave": leave}))
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2


LINES = {module.__file__ for module in (pools, lanes, tickets, seat, carrier, performer)}


class Tear:
    """Raises Ctrl-C at the nth line of this project's that the calling thread comes to.

    Not where a `with` is left, nor at a line that does nothing (`try:`, `return True`): a line is told there between two
    instructions that no signal can come between.
    """

    def __init__(self, nth):
        self.left = nth
        self.torn = False

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename not in LINES:
            return None
        entered = set()

        def within(frame, event, argument):
            if event == "line" and not self._is_seamless(frame, entered):
                self.left -= 1
                if not self.left:
                    self.torn = True
                    raise KeyboardInterrupt
            return within

        return within

    @staticmethod
    def _is_seamless(frame, entered):
        line = frame.f_lineno
        if not linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("with "):
            return frame.f_code.co_code[frame.f_lasti] == dis.opmap["NOP"]
        left = line in entered
        entered.add(line)
        return left


@pytest.mark.alone
@over("scripted")
def test_ctrl_c_at_any_line_of_a_call_costs_that_call_and_leaves_the_environment_to_the_next(stage, eventually):
    nth = torn = 0
    while True:
        nth, tear, before = nth + 1, Tear(nth + 1), sys.gettrace()
        sys.settrace(tear)
        try:
            stage.pool.call(stage.plan, "contract_probe:add", 1, 1)
        except KeyboardInterrupt:
            torn += 1
        finally:
            sys.settrace(before)
        if not tear.torn:
            break
        assert stage.pool.call(stage.plan, "contract_probe:add", nth, 1, options=CallOptions(wait=LIMIT)) == nth + 1, nth
        eventually(lambda: not stage.seat.tickets, what="nothing is left of the call, so another plan could be adopted")
    assert torn > 30, torn


def torn_out_at(nth, job):
    """Run a job, torn out of it at its nth line of this project's; tell whether it came so far."""
    tear, before = Tear(nth), sys.gettrace()
    sys.settrace(tear)
    try:
        job()
    except (KeyboardInterrupt, errors.CallFailed):
        assert tear.torn
    finally:
        sys.settrace(before)
    return tear.torn


def a_call(stage):
    """Hold the lane until another caller waits behind."""
    stage.pool.call(stage.plan, "contract_probe:hold", str(stage.folder))


def a_kill(stage):
    stage.pool.kill(stage.plan)


def other_caller(stage, what, over):
    """Call behind the one that holds the lane, or at once when that is over; return what came of it."""
    wait_until(lambda: (stage.folder / "began").exists() or over.is_set(), LIMIT, "the lane is held")
    other = stage.start("add", 1, 1)
    wait_until(lambda: stage.seat.env.ledger.waiting or other.done() or over.is_set(), LIMIT, "the other waits")
    if what is a_call:
        stage.go()
    return other


@pytest.mark.alone
@over("scripted")
@pytest.mark.parametrize("what", [a_call, a_kill])
def test_ctrl_c_at_any_line_of_one_thread_keeps_nothing_from_a_caller_in_another(stage, what):
    nth, torn = 0, True
    with ThreadPoolExecutor(1) as thread:
        while torn:
            nth += 1
            for mark in ("go", "began"):
                (stage.folder / mark).unlink(missing_ok=True)
            if what is a_kill:
                held = stage.held()
            over = threading.Event()
            asked = thread.submit(other_caller, stage, what, over)
            if what is a_kill:
                wait_until(lambda: stage.seat.env.ledger.waiting, LIMIT, "a caller waits")
            torn = torn_out_at(nth, lambda: what(stage))
            over.set()
            stage.go()
            asked.result(LIMIT).exception(LIMIT)   # whichever way it ended, it was told
            if what is a_kill:
                held.exception(LIMIT)
    assert nth > 30, nth


def test_everybody_who_closes_a_pool_waits_until_its_workers_are_gone(settings, make_plan):
    pool = WorkerPool(settings)
    plans = [make_plan(f"closing{i}") for i in range(2)]
    for plan in plans:
        pool.call(plan, "jobs:pid")
    gate = threading.Barrier(4)

    def close():
        gate.wait(20)
        pool.close()
        return len(pool.records())

    with ThreadPoolExecutor(4) as threads:
        assert [future.result(30) for future in [threads.submit(close) for _ in range(4)]] == [0, 0, 0, 0]


def test_an_environments_own_limit_cannot_hold_up_the_pools_shutdown(settings, make_plan, tmp_path, load):
    from dataclasses import replace

    pool = WorkerPool(replace(settings, shutdown=0.5))
    plan = make_plan("slow to go", limits={"shutdown": 500})
    mark = tmp_path / "in native code"
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(pool.call, plan, "jobs:hold_the_gil", 600, str(mark))
        while not mark.exists():
            assert not call.done()
        started = time.monotonic()
        pool.close()
        assert time.monotonic() - started < load(4.0)
        assert isinstance(call.exception(10), errors.ComfyEnvError)


def test_conda_packages_in_a_virtual_environment_are_refused_and_not_ignored(pool):
    from comfy_env.values import Conda

    plan = EnvPlan(key="mixed", conda=Conda(("conda-forge",), ("ffmpeg",)))
    with pytest.raises(errors.PlanError, match="conda packages"):
        pool.build(plan)
