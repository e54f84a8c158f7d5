"""A plan that was changed under its key: taken when nobody uses the old one's worker, refused by name while somebody does."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.testing.audit import wait_until
from comfy_env.testing.fakes import FakePrompt
from comfy_env.testing.scripted import HOLD, Dies, ScriptedBackend
from comfy_env.values import ExitStatus
from tests.pools import pool_over

PLAN = EnvPlan(key="changing", backend="scripted", variables={"A": "1"}, source="pyproject.toml:3")
OTHER = replace(PLAN, variables={"A": "2"}, source="pyproject.toml:9")


def dies():
    raise Dies(ExitStatus(code=5))


@pytest.fixture
def backend():
    return ScriptedBackend({"m:hold": lambda: HOLD, "m:double": lambda n: 2 * n, "m:die": dies})


@pytest.fixture
def prompt():
    return FakePrompt()


@pytest.fixture
def pool(settings, backend, prompt):
    with pool_over(settings, backend, prompt=prompt) as pool:
        yield pool


def variables(backend):
    return [process.launch.variables["A"] for process in backend.processes]


def test_a_plan_changed_under_an_idle_worker_is_taken_and_its_worker_replaced(pool, backend):
    assert pool.call(PLAN, "m:double", 1) == 2
    assert pool.call(OTHER, "m:double", 2) == 4
    assert pool.record(OTHER).generation == 2
    assert variables(backend) == ["1", "2"]
    assert any("environment changed" in line for line in pool.story(OTHER))


def test_the_same_plan_made_anew_keeps_its_worker(pool, backend):
    pool.call(PLAN, "m:double", 1)
    assert pool.call(replace(PLAN), "m:double", 2) == 4
    assert pool.record(PLAN).generation == 1


def test_another_plan_is_refused_by_name_while_a_call_of_the_first_runs(pool, backend):
    with ThreadPoolExecutor(1) as thread:
        held = thread.submit(pool.call, PLAN, "m:hold")
        wait_until(lambda: backend.open_calls)
        with pytest.raises(errors.PlanError, match="two different plans are called 'changing'") as caught:
            pool.call(OTHER, "m:double", 1)
        assert "pyproject.toml:3" in caught.value.hint and "pyproject.toml:9" in caught.value.hint
        backend.open_calls.pop().reply("done")
        assert held.result(20) == "done"
    assert pool.call(OTHER, "m:double", 2) == 4
    assert variables(backend) == ["1", "2"]


def test_another_plan_is_refused_while_the_prompt_runs_that_the_worker_served(pool, backend, prompt):
    prompt.id = "p1"
    pool.call(PLAN, "m:double", 1)
    with pytest.raises(errors.PlanError, match="two different plans"):
        pool.call(OTHER, "m:double", 1)
    prompt.id = ""
    pool.tick()
    assert pool.call(OTHER, "m:double", 1) == 2


def test_a_mended_plan_is_tried_at_once_where_the_broken_one_was_parked(settings, backend):
    with pool_over(replace(settings, crash_limit=2), backend) as pool:
        for _ in range(2):
            with pytest.raises(errors.WorkerCrashed):
                pool.call(PLAN, "m:die")
        with pytest.raises(errors.Parked):
            pool.call(PLAN, "m:double", 1)
        assert pool.call(OTHER, "m:double", 1) == 2


def test_two_plans_asked_for_at_once_never_mix_in_one_worker(pool, backend):
    gate = threading.Barrier(8)

    def ask(plan):
        gate.wait(20)
        try:
            return pool.call(plan, "m:double", 1)
        except errors.PlanError:
            return 2

    with ThreadPoolExecutor(8) as threads:
        assert [one.result(30) for one in [threads.submit(ask, plan) for plan in (PLAN, OTHER) * 4]] == [2] * 8
    assert pool.call(OTHER, "m:double", 1) == 2
    assert variables(backend)[-1] == "2"
    assert all(process.launch.plan.variables == (("A", process.launch.variables["A"]),) for process in backend.processes)
