"""Rule 1: nothing spawns before a call really runs."""


def test_a_pool_that_is_never_called_opens_nothing(pool, plan, settings):
    assert pool.record(plan) is None
    assert pool.records() == []
    assert not settings.runtime_folder.exists()


def test_the_first_call_brings_the_worker_to_life(pool, plan):
    assert pool.call(plan, "jobs:add", 2, 3) == 5
    worker, generation = pool.record(plan)
    assert generation == 1
    assert worker.pid == pool.call(plan, "jobs:pid")
    assert worker.state == "ready"


def test_inspecting_an_environment_spawns_nothing(pool, plan):
    pool.inspect(plan)
    pool.story(plan)
    pool.interrupt(plan)
    pool.release(plan)
    assert pool.record(plan) is None
