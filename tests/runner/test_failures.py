"""A failing node says where and why, and ends nothing but what depends on it."""

from __future__ import annotations

import pytest

from comfy_env.errors import Interrupted, NodeRaised, WorkerCrashed
from comfy_env.runner import Runner

from .conftest import workflow

FORK = {
    "n1": ("Give", {"value": 1}), "n2": ("Fail", {"value": ["1", 0]}), "n3": ("Show", {"value": ["2", 0]}),
    "n4": ("Add", {"a": ["1", 0], "b": 1}), "n5": ("Show", {"value": ["4", 0]}),
}


def states(report):
    return {row.node: row.state for row in report.rows}


def test_other_branches_go_on(runner):
    report = runner.run(workflow(**FORK))
    assert not report.ok
    assert states(report) == {"1": "done", "2": "failed", "3": "skipped", "4": "done", "5": "done"}
    assert report.row("3").reason == "node 2 has no result"


def test_a_failure_names_node_class_and_environment_and_keeps_its_cause(runner):
    (error,) = runner.run(workflow(**FORK)).errors
    assert (error.node_id, error.class_type, error.env, error.generation) == ("2", "Fail", "env-a", 1)
    assert isinstance(error.__cause__, NodeRaised)
    assert "node 2 (Fail): ArithmeticError: no good" in str(error)


def test_a_crash_shows_the_workers_last_words(runner, pool):
    pool.failing["Give"] = [WorkerCrashed("the worker ended", env="env-a", generation=1, pid=77, status="SIGKILL", output=("last words",))]
    report = runner.run(workflow(n1=("Give", {"value": 1}), n2=("Show", {"value": ["1", 0]})))
    assert (report.row("1").pid, report.row("1").generation) == (77, 1)
    assert "last words" in str(report.errors[0]) and "SIGKILL" in str(report.errors[0])


def test_an_interrupted_node_ends_the_run(runner, pool):
    pool.failing["Fail"] = [Interrupted("asked", env="env-a", generation=1)]
    flow = workflow(
        n1=("Fail", {"value": 1}), n2=("Show", {"value": ["1", 0]}), n3=("Add", {"a": 1, "b": 2}), n4=("Show", {"value": ["3", 0]}))
    report = runner.run(flow)
    assert report.interrupted and not report.ok
    assert states(report)["1"] == "failed" and states(report)["4"] == "skipped"


def test_ctrl_c_interrupts_what_runs_and_is_raised(pack, pool, monkeypatch):
    runner = Runner(pool, [pack()])
    flow = workflow(n1=("Give", {"value": 1}), n2=("Show", {"value": ["1", 0]}))
    runner.check(flow)
    original = pool.call

    def stopped(plan, target, *args, **more):
        if target.endswith(":execute"):
            raise KeyboardInterrupt
        return original(plan, target, *args, **more)

    pool.call = stopped
    with pytest.raises(KeyboardInterrupt):
        runner.run(flow)


def test_interrupt_from_another_thread_reaches_the_pool_and_skips_the_rest(pack, pool):
    runner = Runner(pool, [pack()])
    original = pool.call

    def interrupting(plan, target, *args, **more):
        if target.endswith(":execute"):
            runner.interrupt()
        return original(plan, target, *args, **more)

    pool.call = interrupting
    report = runner.run(workflow(n1=("Give", {"value": 1}), n2=("Show", {"value": ["1", 0]})))
    assert pool.interrupted == ["env-a"]
    assert states(report) == {"1": "done", "2": "skipped"} and report.interrupted


def test_a_report_is_json(runner):
    import json

    told = json.loads(json.dumps(runner.run(workflow(**FORK)).as_json()))
    assert told["ok"] is False
    assert [row["state"] for row in told["rows"] if row["node"] == "2"] == ["failed"]
    assert any("no good" in (row["error"] or "") for row in told["rows"])
