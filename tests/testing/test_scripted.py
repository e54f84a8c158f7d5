"""The scripted backend: a whole pool over a worker that is nothing but a table of functions."""

import threading
from dataclasses import replace

import pytest

from comfy_env import errors
from comfy_env.hooks import Registry
from comfy_env.pool import WorkerPool
from comfy_env.settings import Settings
from comfy_env.testing.scripted import Dies, ScriptedBackend
from comfy_env.values import EnvPlan, ExitStatus

PLAN = EnvPlan(key="scripted", backend="scripted")


def dies(code):
    raise Dies(ExitStatus(code=code))


@pytest.fixture
def backend():
    return ScriptedBackend({"m:add": lambda a, b: a + b, "m:die": dies, "m:fail": lambda: {}["no such cat"]})


@pytest.fixture
def pool(backend):
    registry = Registry(find=lambda group: ())
    registry.register("scripted", backend)
    with WorkerPool(replace(Settings.read(), crash_limit=100, kill=0.5), registry=registry) as pool:
        yield pool


def test_a_call_runs_the_scripted_function(pool, backend):
    assert pool.call(PLAN, "m:add", 40, b=2) == 42
    assert backend.told == ["spawn", "transport", "verify"]


def test_a_function_that_raises_fails_its_call(pool):
    with pytest.raises(errors.NodeRaised, match="no such cat"):
        pool.call(PLAN, "m:fail")


def test_a_scripted_death_is_told_with_its_status_and_the_next_call_is_served(pool, backend):
    with pytest.raises(errors.WorkerCrashed) as caught:
        pool.call(PLAN, "m:die", 3)
    assert "exited with status 3" in caught.value.status
    assert pool.call(PLAN, "m:add", 1, 1) == 2
    assert pool.record(PLAN).generation == len(backend.processes) == 2


def test_a_receipt_tells_what_the_script_held(pool, backend):
    pool.call(PLAN, "m:add", 1, 1)
    backend.held = 1000
    assert pool.release(PLAN).freed == 1000


@pytest.mark.parametrize("verb", ["spawn", "transport", "verify"])
def test_a_fault_fails_the_birth_naming_backend_and_verb(pool, backend, verb):
    backend.faults[verb] = None
    with pytest.raises(errors.ComfyEnvError, match=f"backend 'scripted': {verb} returned None"):
        pool.call(PLAN, "m:add", 1, 1)
    del backend.faults[verb]
    assert pool.call(PLAN, "m:add", 1, 1) == 2


def test_a_gate_holds_a_verb_until_it_is_opened(pool, backend):
    backend.gates["verify"] = threading.Event()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(pool.call(PLAN, "m:add", 1, 1)))
    caller.start()
    assert answers == []
    backend.gates["verify"].set()
    caller.join(30)
    assert answers == [2]
