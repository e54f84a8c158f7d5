"""Rule 2: one spawn, many waiters; cold environments start in parallel, and the pool's lock is never held meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor

from comfy_env import EnvPlan, errors
from comfy_env.testing.stage import LIMIT


def test_callers_of_one_cold_environment_share_one_spawn(stage):
    futures = [stage.start("add", number) for number in range(24)]
    assert [future.result(LIMIT) for future in futures] == list(range(24))
    assert stage.spy.spawns == 1


def test_waiting_callers_all_get_the_same_named_error_each_an_object_of_its_own(stage, eventually):
    gate = threading.Event()
    stage.spy.before["verify"] = lambda process: gate.wait(LIMIT)
    stage.spy.lies = True
    futures = [stage.start("add", number) for number in range(16)]
    eventually(lambda: stage.pool.seats() and len(stage.seat.env.ledger.waiting) == 16)
    gate.set()
    found = [future.exception(LIMIT) for future in futures]
    assert {type(error) for error in found} == {errors.TransportRefused}
    assert len({error.message for error in found}) == 1 and len({id(error) for error in found}) == 16
    assert {error.generation for error in found} == {1}


def test_two_cold_environments_are_in_their_spawns_at_the_same_time_and_no_lock_is_held(stage):
    """Each spawn waits for the other's, so both can only end if they overlap."""
    both = threading.Barrier(2)
    free = []

    def spawning(launch):
        both.wait(LIMIT)
        seat = next(seat for seat in stage.pool.seats() if seat.key == launch.env)
        for lock in (stage.pool._lock, seat.lock):
            free.append(lock.acquire(timeout=5))
            lock.release()
        both.wait(LIMIT)

    stage.spy.before["spawn"] = spawning
    futures = [stage.start("add", 1, plan=stage.other(key)) for key in ("first", "second")]
    assert [future.result(LIMIT) for future in futures] == [1, 1]
    assert free == [True] * 4


def test_a_warm_environment_answers_while_another_is_being_born(stage):
    stage.serve()
    gate = threading.Event()
    stage.spy.before["spawn"] = lambda launch: gate.wait(LIMIT)
    cold = stage.start("add", 1, plan=stage.other("cold"))
    assert [stage.call("add", number) for number in range(5)] == list(range(5))
    assert not cold.done()
    gate.set()
    assert cold.result(LIMIT) == 1


def test_64_threads_on_one_cold_environment_share_one_spawn(pool, plan):
    gate = threading.Barrier(64)

    def ask():
        gate.wait(30)
        return pool.call(plan, "jobs:pid")

    with ThreadPoolExecutor(64) as threads:
        pids = {future.result(60) for future in [threads.submit(ask) for _ in range(64)]}
    assert len(pids) == 1
    assert pool.record(plan).generation == 1


def test_callers_of_an_environment_without_an_interpreter_get_the_same_named_error(pool, tmp_path):
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
    assert len({id(error) for error in found}) == 16
