"""Rule 1: nothing spawns before a call really runs."""

import subprocess
import sys


def test_nothing_that_looks_at_an_environment_spawns_a_worker(stage):
    pool, plan = stage.pool, stage.plan
    pool.inspect(plan, probe=False)
    assert pool.record(plan) is None and pool.records() == [] and pool.story(plan) == ()
    assert not pool.interrupt(plan) and pool.release(plan) is None and not pool.kill(plan)
    assert pool.ask_aside(plan, "fingerprint", {"pack": "p", "class": "c"}) is None
    pool.sources_changed(plan)
    pool.tick()
    assert (stage.spy.spawns, stage.spy.told) == (0, [])


def test_what_looks_at_a_cold_environment_again_spawns_no_worker_either(stage, eventually):
    stage.serve()
    stage.pool.kill(stage.plan)
    eventually(stage.settled)
    assert stage.pool.ask_aside(stage.plan, "refresh_input_types", {"pack": "p", "class": "c"}) is None
    stage.pool.tick()
    assert stage.pool.release(stage.plan) is None
    assert stage.spy.spawns == 1


def test_a_pool_that_is_never_called_opens_nothing(pool, plan, settings):
    assert pool.record(plan) is None
    assert pool.records() == []
    assert not settings.runtime_folder.exists()


def test_importing_the_package_starts_no_thread_and_opens_no_file():
    program = (
        "import os, threading; before = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0\n"
        "import comfy_env; from comfy_env import WorkerPool; pool = WorkerPool()\n"
        "after = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0\n"
        "print(threading.active_count(), after - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["1", "0"], done


def test_the_first_call_brings_the_worker_to_life(stage):
    stage.serve()
    worker, generation = stage.record
    assert generation == 1 and worker.state == "ready" and stage.spy.spawns == 1


def test_inspecting_an_environment_spawns_nothing(pool, plan):
    pool.inspect(plan)
    pool.story(plan)
    pool.interrupt(plan)
    pool.release(plan)
    assert pool.record(plan) is None
