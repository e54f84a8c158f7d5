"""A node whose inputs did not change keeps its values from run to run."""

from __future__ import annotations

import pytest

from comfy_env.errors import WorkerCrashed
from comfy_env.runner import Runner
from comfy_env.values import RemoteRef

from .conftest import workflow


def chain(value: int, b: int = 1):
    return workflow(n1=("Give", {"value": value}), n2=("Add", {"a": ["1", 0], "b": b}), n3=("Show", {"value": ["2", 0]}))


def states(report):
    return {row.node: row.state for row in report.rows}


def test_the_same_workflow_again_runs_nothing_and_gives_the_same(runner, pool):
    first = runner.run(chain(3))
    again = runner.run(chain(3))
    assert set(states(again).values()) == {"cached"}
    assert again.outputs == first.outputs and again.ui == first.ui
    assert len(pool.executed()) == 3


def test_a_changed_constant_runs_its_node_and_those_behind_it(runner):
    runner.run(chain(3))
    report = runner.run(chain(3, b=2))
    assert states(report) == {"1": "cached", "2": "done", "3": "done"}
    assert report.outputs["3"] == [[5]]


def test_only_the_last_values_are_kept(runner):
    runner.run(chain(3))
    runner.run(chain(4))
    assert set(states(runner.run(chain(3))).values()) == {"done"}


def test_forget_makes_every_node_run(runner):
    runner.run(chain(3))
    runner.forget()
    assert set(states(runner.run(chain(3))).values()) == {"done"}


def test_a_failed_node_runs_again_and_what_is_there_is_kept(runner, pool):
    pool.failing["Add"] = [WorkerCrashed("gone", env="env-a", generation=1, pid=7)]
    assert states(runner.run(chain(3))) == {"1": "done", "2": "failed", "3": "skipped"}
    report = runner.run(chain(3))
    assert states(report) == {"1": "cached", "2": "done", "3": "done"}
    assert [report.row(node).generation for node in "12"] == [1, 2]


def test_forget_makes_new_instances(runner, pool):
    flow = workflow(n1=("Count", {"value": 0}), n2=("Show", {"value": ["1", 0]}))
    counts = []
    for _ in range(2):
        counts.append(runner.run(flow).outputs["1"])
        runner.forget()
    assert counts == [[[1]], [[1]]]


def test_forget_starts_no_worker(runner, pool):
    runner.forget()
    assert pool.calls == []


WATCHFUL = '''
STATE = {"value": "first", "asked": []}

class Watch:
    FUNCTION, RETURN_TYPES = "run", ("STRING",)
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"name": ("STRING",)}, "optional": {"link": ("STRING",)}}
    @classmethod
    def IS_CHANGED(cls, name, link="nothing"):
        STATE["asked"].append((name, link))
        if STATE["value"] == "raise":
            raise OSError("gone")
        return STATE["value"]
    def run(self, name, link=None):
        return (name,)

class Show:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", (), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("STRING",)}}
    def run(self, value):
        return ()

class Tell:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("STRING",), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("STRING",)}, "hidden": {"state": "UNIQUE_ID"}}
    def run(self, value, state):
        STATE["value"] = float("nan") if value == "nan" else value
        return (str(STATE["asked"]),)
'''


@pytest.fixture
def watchful(pack, pool):
    """A runner whose node Watch says it changed when told to, and a function that tells it."""
    runner = Runner(pool, [pack(nodes=WATCHFUL)])

    def tell(value):
        return runner.run(workflow(n9=("Tell", {"value": value}))).outputs["9"][0][0]

    return runner, tell


FLOW = workflow(n1=("Watch", {"name": "x"}), n2=("Show", {"value": ["1", 0]}))


def again(watchful, value):
    """Run, tell Watch what to say next, and run with the values of the first run remembered."""
    runner, tell = watchful
    runner.run(FLOW)
    kept = dict(runner._cache)
    tell(value)
    runner._cache = kept
    return runner.run(FLOW)


@pytest.mark.parametrize(("value", "state"), [("first", "cached"), ("second", "done"), ("nan", "done"), ("raise", "done")])
def test_is_changed_decides_whether_a_node_runs_again(watchful, value, state):
    assert set(states(again(watchful, value)).values()) == {state}


def test_nan_is_new_each_time(watchful):
    runner, tell = watchful
    tell("nan")
    assert [states(runner.run(FLOW))["1"] for _ in range(3)] == ["done"] * 3


def test_is_changed_is_told_none_for_a_linked_input(watchful):
    runner, tell = watchful
    runner.run(workflow(n1=("Watch", {"name": "a"}), n2=("Watch", {"name": "b", "link": ["1", 0]}), n3=("Show", {"value": ["2", 0]})))
    asked = tell("first")
    assert "('b', None)" in asked and "('a', 'nothing')" in asked


def test_a_reference_to_a_dead_workers_object_is_made_again(runner, pool):
    runner.run(chain(3))
    runner._cache["1"].outcome.outputs[0][0] = RemoteRef("env-a", 1, 5, "Thing")
    pool.generations["env-a"] = 2
    assert runner.run(chain(3)).row("1").state == "done"


def test_a_reference_to_a_living_workers_object_is_kept(runner, pool):
    runner.run(chain(3))
    runner._cache["1"].outcome.outputs[0][0] = RemoteRef("env-a", 1, 5, "Thing")
    assert runner.run(chain(3)).row("1").state == "cached"
