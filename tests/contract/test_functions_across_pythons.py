"""Functions by name reach every Python; closures by value only the host's own minor version."""

import sys
import threading

import pytest

from comfy_env import EnvPlan, errors


def other_minors(pythons):
    return {minor: path for minor, path in pythons.items() if minor != sys.version_info[:2]}


def test_a_function_by_name_runs_in_every_python_found(pool, make_plan, pythons):
    assert pythons, "no interpreter was found, not even this one"
    for (major, minor), python in pythons.items():
        where = pool.call(make_plan(f"py{major}{minor}", python), "jobs:where")
        assert where["minor"] == [major, minor]
        assert pool.call(make_plan(f"py{major}{minor}", python), "jobs:add", 20, 22) == 42


def test_a_closure_by_value_runs_in_the_hosts_own_minor_version(pool, plan):
    factor = 7
    assert pool.call(plan, lambda value: value * factor, 6) == 42


def test_a_closure_is_refused_for_another_minor_version_before_anything_is_sent(pool, make_plan, pythons):
    found = other_minors(pythons)
    if not found:
        assert list(pythons) == [sys.version_info[:2]]
        return
    (major, minor), python = next(iter(found.items()))
    plan = make_plan("foreign", python)
    pool.call(plan, "jobs:pid")
    factor = 7
    with pytest.raises(errors.EncodeRefused) as caught:
        pool.call(plan, lambda value: value * factor, 6)
    text = str(caught.value)
    assert "pass it by name" in text
    assert f"{sys.version_info[0]}{sys.version_info[1]}" in text.replace(".", "") and f"{major}{minor}" in text.replace(".", "")
    assert pool.call(plan, "jobs:add", 1, 2) == 3
    assert pool.record(plan).generation == 1, "a refusal costs no worker"


def test_a_value_that_cannot_cross_is_refused_with_its_path_and_the_lane_stays(pool, plan):
    with pytest.raises(errors.EncodeRefused, match=r"opts\['fn'\]\[1\]|opts.*fn.*1"):
        pool.call(plan, "jobs:echo", {"opts": {"fn": [1, threading.Lock()]}})
    assert pool.call(plan, "jobs:add", 1, 2) == 3


def test_an_object_neither_side_can_name_stays_where_it_is(pool, plan):
    counter = pool.call(plan, "jobs:make_counter")
    assert [pool.call(plan, "jobs:count", counter) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(errors.ComfyEnvError, match="jobs.Counter of env here"):
        pool.call(EnvPlan.existing(sys.executable, "other"), "builtins:repr", counter)


def test_a_reference_to_a_dead_generation_is_lost_by_name(pool, plan):
    counter = pool.call(plan, "jobs:make_counter")
    with pytest.raises(errors.WorkerCrashed):
        pool.call(plan, "jobs:kill_self")
    pool.call(plan, "jobs:pid")
    with pytest.raises(errors.ReferenceLost):
        pool.call(plan, "jobs:count", counter)


def test_the_worker_gets_no_python_or_venv_variables_of_the_host(pool, plan, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "/a")
    monkeypatch.setenv("PYTHONPATH", "/b")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
    variables = pool.call(plan, "jobs:environment")
    assert not {"VIRTUAL_ENV", "PYTHONPATH", "HF_TOKEN"} & set(variables)
    assert variables["HSA_OVERRIDE_GFX_VERSION"] == "10.3.0"


def test_neither_torch_nor_numpy_is_imported_in_a_worker_that_does_not_ask(pool, plan):
    modules = pool.call(plan, "jobs:modules")
    assert not {"torch", "numpy", "PIL", "pluggy", "psutil"} & set(modules)
