"""A caller's own trouble costs its call and nothing else."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from comfy_env import CallOptions, EnvPlan, WorkerPool, errors
from comfy_env.lifecycle import effects
from comfy_env.pool import lanes, tickets
from comfy_env.pool import pool as pools
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


@over("scripted")
def test_an_offer_whose_teller_was_torn_out_is_made_again_at_the_next_tick(stage, eventually):
    held = stage.held()
    carrier, lost = stage.seat.carry, []

    def torn(seat, before, after, event, wanted):
        if any(isinstance(effect, effects.Dispatch) for effect in wanted) and not lost:
            lost.append(event)   # Ctrl-C between the step and its effects: the other caller hears nothing of its turn
            wanted = tuple(effect for effect in wanted if not isinstance(effect, effects.Dispatch))
        carrier(seat, before, after, event, wanted)

    stage.seat.carry = torn
    waiting = stage.start("add", 1)
    eventually(lambda: stage.seat.env.ledger.waiting)
    stage.go()
    assert held.result(LIMIT) == "gone"
    eventually(lambda: lost)
    stage.pool.tick()
    assert waiting.result(LIMIT) == 1


def test_callers_that_leave_with_ctrl_c_do_not_park_the_environment(pool, plan):
    def leave():
        raise KeyboardInterrupt

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            pool.call(plan, "jobs:call_back", "leave", options=CallOptions(callbacks={"leave": leave}))
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2


LINES = {module.__file__ for module in (pools, lanes, tickets)}


class Tear:
    """Raises Ctrl-C at the nth line of this project's that the calling thread comes to."""

    def __init__(self, nth):
        self.left = nth
        self.torn = False

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename not in LINES:
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                self.torn = True
                raise KeyboardInterrupt
        return self


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
