"""Rule 2: one spawn, many waiters; cold environments start in parallel."""

import threading
from concurrent.futures import ThreadPoolExecutor

from comfy_env import EnvPlan, errors


def test_64_threads_on_one_cold_environment_share_one_spawn(pool, plan):
    gate = threading.Barrier(64)

    def ask():
        gate.wait(30)
        return pool.call(plan, "jobs:pid")

    with ThreadPoolExecutor(64) as threads:
        pids = {future.result(60) for future in [threads.submit(ask) for _ in range(64)]}
    assert len(pids) == 1
    assert pool.record(plan).generation == 1
    assert sum("spawn" in line.lower() for line in pool.story(plan)) >= 1


def test_64_threads_on_a_broken_environment_get_the_same_named_error(pool, tmp_path):
    plan = EnvPlan.existing(tmp_path / "no-python", "missing")
    gate = threading.Barrier(16)

    def ask():
        gate.wait(30)
        try:
            pool.call(plan, "jobs:pid")
        except errors.InterpreterMissing as error:
            return error
        return None

    with ThreadPoolExecutor(16) as threads:
        found = [future.result(60) for future in [threads.submit(ask) for _ in range(16)]]
    assert all(isinstance(error, errors.InterpreterMissing) for error in found)
    assert len({id(error) for error in found}) == 16, "each asker gets an exception of its own"


def test_two_cold_environments_are_born_while_both_are_unfinished(pool, make_plan, tmp_path):
    """Each call waits for the other's mark, so they can only return if both workers live at once."""
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(pool.call, make_plan("first"), "jobs:touch_then_wait_for", one, two, 20.0)
        second = threads.submit(pool.call, make_plan("second"), "jobs:touch_then_wait_for", two, one, 20.0)
        assert first.result(60) and second.result(60)


def test_a_warm_environment_answers_while_another_is_being_born(pool, make_plan, plan):
    pool.call(plan, "jobs:pid")
    born = threading.Event()
    registry = pool.registry.backend("venv")
    real = registry.spawn

    def slow(launch):
        born.wait(20)
        return real(launch)

    registry.spawn = slow
    try:
        with ThreadPoolExecutor(1) as threads:
            cold = threads.submit(pool.call, make_plan("cold"), "jobs:pid")
            assert pool.call(plan, "jobs:add", 1, 1) == 2
            assert not cold.done()
            born.set()
            assert cold.result(60)
    finally:
        born.set()
        registry.spawn = real
