"""What the pool makes of values that lie in a worker's memory: they keep it from the reaper and outlive it."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from comfy_env import EnvPlan, WorkerPool, errors
from comfy_env.pool import births
from comfy_env.settings import Settings
from comfy_env.testing.clock import MovableClock
from tests.arena.kit import PACK, mapped_segments, shared_bytes, shared_descriptors

COUNT = 100_000


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def pool(tmp_path, clock):
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", idle_release=60, idle_reap=600, crash_limit=100)
    with WorkerPool(settings, clock=clock) as pool:
        yield pool


def plan(key="a"):
    return EnvPlan.existing(sys.executable, key, root=PACK)


def test_a_value_that_is_looked_at_keeps_its_worker_from_the_reaper(pool, clock, eventually):
    kept = pool.call(plan(), "arena_pack:ones", COUNT)
    _sit_idle(pool, clock, 3000)
    assert pool.record("a").generation == 1
    assert kept.sum() == COUNT
    del kept
    gc.collect()
    _sit_idle(pool, clock, 3000)
    eventually(lambda: pool.record("a") is None)


def _sit_idle(pool, clock, seconds):
    for _ in range(seconds // 100):
        clock.advance(100)
        pool.tick()
        pool.release("a")


def test_a_value_survives_the_death_and_replacement_of_its_worker(pool):
    kept = pool.call(plan(), "arena_pack:ones", COUNT)
    with pytest.raises(errors.WorkerCrashed):
        pool.call(plan(), "arena_pack:crash")
    assert kept.sum() == COUNT
    assert pool.call(plan(), "arena_pack:total", kept) == COUNT
    assert pool.record("a").generation == 2
    pool.kill("a")
    kept += 1
    assert pool.call(plan(), "arena_pack:total", kept) == 2 * COUNT


def test_a_successor_is_started_when_the_shared_memory_of_the_dead_is_back(pool, monkeypatch):
    before, found = shared_bytes(), []
    kept, *others = [pool.call(plan(), "arena_pack:ones", 8 * COUNT) for _ in range(9)]
    others.clear()
    gc.collect()
    assert shared_bytes() - before >= 9 * kept.nbytes
    prepare = births._prepare
    monkeypatch.setattr(births, "_prepare", lambda *given: (found.append(shared_bytes() - before), prepare(*given))[1])
    with pytest.raises(errors.WorkerCrashed):
        pool.call(plan(), "arena_pack:crash")
    assert pool.call(plan(), "arena_pack:total", kept) == 8 * COUNT
    assert len(found) == 1 and kept.nbytes <= found[0] < 2 * kept.nbytes, "what the host looks at stays, the rest is back"


def test_workers_replaced_again_and_again_leave_no_memory_and_no_descriptors(pool):
    own = np.ones(COUNT, "f4")
    pool.call(plan("b"), "arena_pack:total", own)
    counts = []
    for _ in range(4):
        made = pool.call(plan("a"), "arena_pack:plus_one", own)
        assert pool.call(plan("b"), "arena_pack:total", made) == 2 * COUNT
        del made
        pool.kill("a")
        gc.collect()
        counts.append((shared_descriptors(), mapped_segments()))
    assert counts[1:] == counts[:-1]
    assert pool.record("b").generation == 1


def test_a_chain_through_three_workers_copies_nothing_on_the_way(pool):
    value = pool.call(plan("a"), "arena_pack:ones", 1_000_000)
    for key in ("b", "c"):
        assert pool.call(plan(key), "arena_pack:total", value) == 1_000_000
        traffic = pool._seats[key].worker.session.traffic
        assert (traffic["copied"] < 200_000, traffic["passed"]) == (True, 4_000_000)
