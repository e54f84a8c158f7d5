"""Rules 9, 12 and 13: health, sweep and reaper, on a clock the test moves."""

import pytest

from comfy_env import WorkerPool
from comfy_env.testing.clock import MovableClock


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def pool(settings, clock):
    with WorkerPool(settings, clock=clock) as pool:
        yield pool


def test_a_worker_idle_past_the_reaping_time_is_ended(pool, plan, clock, settings, eventually):
    pool.call(plan, "jobs:pid")
    clock.advance(settings.idle_reap - 1)
    pool.tick()
    assert pool.record(plan) is not None
    clock.advance(2)
    pool.tick()
    eventually(lambda: pool.record(plan) is None)
    assert any("idle" in line for line in pool.story(plan))
    pool.call(plan, "jobs:pid")
    assert pool.record(plan).generation == 2


def test_a_worker_whose_object_the_host_holds_is_not_reaped(pool, plan, clock, settings, eventually):
    counter = pool.call(plan, "jobs:make_counter")
    assert pool.call(plan, "jobs:count", counter) == 1
    clock.advance(settings.idle_reap + 1)
    pool.tick()
    assert pool.record(plan).generation == 1
    assert pool.call(plan, "jobs:count", counter) == 2
    del counter
    clock.advance(settings.idle_reap + 1)
    pool.tick()
    eventually(lambda: pool.record(plan) is None)


def test_a_worker_idle_for_a_minute_is_pinged_before_its_next_call(pool, plan, clock, settings):
    pid = pool.call(plan, "jobs:pid")
    clock.advance(settings.ping_idle + 1)
    assert pool.call(plan, "jobs:pid") == pid
    assert any("ping" in line.lower() or "health" in line.lower() for line in pool.story(plan))


def test_a_stopped_worker_fails_its_ping_and_is_replaced_unseen(settings, make_plan, clock):
    import os
    import signal

    with WorkerPool(settings, clock=clock) as pool:
        plan = make_plan("stopped", limits={"ping": 0.3})
        pid = pool.call(plan, "jobs:pid")
        os.kill(pid, signal.SIGSTOP)
        clock.advance(settings.ping_idle + 1)
        assert pool.call(plan, "jobs:pid") != pid
        assert pool.record(plan).generation == 2
