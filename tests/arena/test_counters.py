"""What a call costs, counted and not timed: these figures hold on any machine under any load."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pluggy
import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.lifecycle import machine
from comfy_env.settings import Settings
from comfy_env.worker.wire import spin
from tests.arena.kit import PACK, pack_module

CALLS = 50
COUNT = 3 * 1024 * 1024 // 4   # float32: 3 MiB


def test_a_fresh_value_is_copied_once_and_one_that_is_shared_never(worker):
    value = np.ones(COUNT, "f4")
    worker.value("arena_pack:total", value)
    before = worker.session.traffic
    worker.value("arena_pack:total", value)
    fresh = worker.session.traffic
    assert fresh["copied"] - before["copied"] == value.nbytes
    made = worker.value("arena_pack:ones", COUNT)
    worker.value("arena_pack:total", made)
    shared = worker.session.traffic
    assert (shared["copied"], shared["passed"] - fresh["passed"]) == (fresh["copied"], made.nbytes)
    assert shared["spilled"] == 0


def test_no_page_faults_are_caused_on_either_side_after_the_first_calls(worker, record_property):
    value = np.ones(COUNT, "f4")
    for _ in range(5):
        worker.value("arena_pack:total", value)
    theirs, mine = worker.value("arena_pack:page_faults"), resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        worker.value("arena_pack:total", value)
    mine = (resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - mine) / CALLS
    theirs = (worker.value("arena_pack:page_faults") - theirs) / CALLS
    record_property("faults per call", {"host": mine, "worker": theirs})
    assert max(mine, theirs) < 1   # one page of 3 MiB touched anew would be 768 of them


def test_a_call_of_nothing_takes_one_write_and_one_read_on_each_side(worker):
    worker.value("arena_pack:count_system_calls")
    worker.value("arena_pack:nothing")
    lane = worker.lanes.main
    lane.sock = counting = pack_module().Counting(lane.sock)
    theirs = worker.value("arena_pack:system_calls")
    mine = counting.calls
    for _ in range(CALLS):
        worker.value("arena_pack:nothing")
    assert (counting.calls - mine) / CALLS <= 2
    assert (worker.value("arena_pack:system_calls") - theirs - 2) / CALLS <= 2


def test_a_call_of_nothing_sleeps_at_most_once_on_each_side(worker, record_property):
    for _ in range(5):
        worker.value("arena_pack:nothing")
    theirs, mine = worker.value("arena_pack:switches"), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(CALLS):
        worker.value("arena_pack:nothing")
    mine = (resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - mine) / CALLS
    theirs = (worker.value("arena_pack:switches") - theirs) / CALLS
    record_property("sleeps per call", {"host": mine, "worker": theirs})
    assert max(mine, theirs) <= 1.1


def test_no_hook_is_called_on_the_way_of_a_warm_call(tmp_path, monkeypatch):
    plan = EnvPlan.existing(sys.executable, "a", root=PACK)
    with WorkerPool(Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs")) as pool:
        pool.call(plan, "arena_pack:nothing")
        hooks = []
        call = pluggy.HookCaller.__call__
        monkeypatch.setattr(pluggy.HookCaller, "__call__", lambda self, **facts: (hooks.append(self.name), call(self, **facts))[1])
        for _ in range(CALLS):
            pool.call(plan, "arena_pack:nothing")
        assert hooks == []
    assert "comfy_env_kill" in hooks   # the counting does count


def test_a_warm_call_is_two_steps_of_its_environments_life(tmp_path, monkeypatch):
    plan = EnvPlan.existing(sys.executable, "a", root=PACK)
    with WorkerPool(Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs")) as pool:
        pool.call(plan, "arena_pack:nothing")
        events, step = [], machine.step
        told = lambda env, event, now: (events.append(type(event).__name__), step(env, event, now))[1]  # noqa: E731
        monkeypatch.setattr("comfy_env.pool.seat.step", told)
        pool.call(plan, "arena_pack:nothing")
        assert [name for name in events if name != "Tick"] == ["CallWanted", "CallEnded"]


def _steps(act) -> int:
    """How many calls of functions an action takes on this thread, but for looking whether the answer is there."""
    count = 0

    def counted(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call") and frame.f_code.co_filename != spin.__file__

    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.alone
def test_a_call_takes_no_more_steps_with_many_values_alive_than_with_few(worker):
    made = worker.value("arena_pack:ones", 20_000)
    alive = [worker.value("arena_pack:ones", 20_000) for _ in range(10)]
    for _ in range(5):
        worker.value("arena_pack:total", made)
    few = min(_steps(lambda: worker.value("arena_pack:total", made)) for _ in range(5))
    alive += [worker.value("arena_pack:ones", 20_000) for _ in range(400)]
    worker.value("arena_pack:total", made)
    many = min(_steps(lambda: worker.value("arena_pack:total", made)) for _ in range(5))
    assert worker.session.tensors == 411
    assert many <= few + 5
    assert sum(float(value[0]) for value in alive) == 410
