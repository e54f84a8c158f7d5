"""The one thread that sees deaths and limits goes on, whatever happens around it."""

import threading

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.lifecycle.events import KillWanted
from comfy_env.pool import WorkerPool, lanes
from comfy_env.pool.clocks import LivedClock
from comfy_env.pool.watcher import Watcher
from comfy_env.testing.audit import wait_until
from comfy_env.testing.scripted import Dies, ScriptedBackend
from comfy_env.values import ExitStatus
from tests.pools import pool_over

PLAN = EnvPlan(key="watched", backend="scripted")


def dies():
    raise Dies(ExitStatus(code=5))


@pytest.fixture
def pool(settings):
    with pool_over(settings, ScriptedBackend({"m:double": lambda n: 2 * n, "m:die": dies})) as pool:
        yield pool


def test_an_error_in_one_look_is_logged_and_the_next_death_is_seen(pool, caplog):
    assert pool.call(PLAN, "m:double", 1) == 2
    watcher = pool._house.watcher
    broken = threading.Event()
    real = watcher._limits

    def limits():
        watcher._limits = real
        broken.set()
        raise ZeroDivisionError("a defect")

    watcher._limits = limits
    watcher.wake_by(float("-inf"))
    assert broken.wait(10)
    wait_until(lambda: "the watcher goes on" in caplog.text)
    with pytest.raises(errors.WorkerCrashed, match="status 5"):
        pool.call(PLAN, "m:die")
    assert pool.call(PLAN, "m:double", 2) == 4


def test_a_limit_that_becomes_earlier_while_the_watcher_looks_at_the_limits_is_not_slept_over():
    woken = []

    def seats():
        watcher.wake_by(100.3)   # another thread's event, after this environment was looked at and before the watcher sleeps
        return ()

    watcher = Watcher(LivedClock(), lambda: 100.0, seats, lambda: None, 10.0)
    watcher._thread, watcher._until, watcher._do = threading.current_thread(), 99.0, woken.append
    watcher._timeout()
    assert len(woken) == 1


def test_a_kill_that_meets_a_replacement_waits_for_the_worker_that_it_ends(pool):
    """Another one came in place of the first a moment before."""
    assert pool.call(PLAN, "m:double", 1) == 2
    (seat,) = pool.seats()
    met = []

    def meeting(real):
        def post(*given, **more):
            if not met and any(isinstance(one, KillWanted) for one in given):
                met.append(seat.env.row.generation)
                pool.kill(PLAN)
                assert pool.call(PLAN, "m:double", 2) == 4
            return real(*given, **more)

        return post

    seat.post, seat.post_if = meeting(seat.post), meeting(seat.post_if)
    assert pool.kill(PLAN)
    assert met == [1] and seat.env.ledger.generation == 2
    assert pool.record(PLAN) is None, "the second is gone, too"


@pytest.mark.parametrize(("begins", "warm"), [("_want", True), ("_accept", False)])
def test_a_caller_that_comes_round_when_its_worker_and_the_next_are_long_dead_gets_its_own_failure(pool, monkeypatch, begins, warm):
    """Between the moment it got the lane and its call two generations came and went, and with them what was kept of its worker."""
    if warm:
        assert pool.call(PLAN, "m:double", 1) == 2
    real, slept = getattr(lanes, begins), []

    def slow(seat, ticket, *given):
        begun = real(seat, ticket, *given)
        monkeypatch.setattr(lanes, begins, real)
        generation = seat.env.row.generation
        assert begun and seat.env.row.activity.running == ticket.number
        for number in range(2):
            pool.kill(PLAN)
            assert pool.call(PLAN, "m:double", number) == 2 * number
        slept.append(generation not in seat.workers)
        return begun

    monkeypatch.setattr(lanes, begins, slow)
    with pytest.raises(errors.WorkerCrashed):
        pool.call(PLAN, "m:double", 5)
    assert slept == [True]
    assert pool.call(PLAN, "m:double", 3) == 6


def test_a_pool_that_never_called_closes_without_ever_having_opened_anything(settings):
    pool = WorkerPool(settings)
    pool.tick()
    pool.close()
    assert pool._house.watcher._thread is None
