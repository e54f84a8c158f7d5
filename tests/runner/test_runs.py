"""A run executes what the output nodes need, once each, in order, with ComfyUI's list rules."""

from __future__ import annotations

import threading

import pytest

from comfy_env.runner import Runner

from .conftest import workflow
from .fakes import Diary


def test_values_flow_along_links_to_the_output(runner):
    report = runner.run(workflow(n1=("Give", {"value": 3}), n2=("Add", {"a": ["1", 0], "b": 4}), n3=("Show", {"value": ["2", 0]})))
    assert report.ok
    assert report.outputs["3"] == [[7]]
    assert report.ui == {"3": {"text": ["7"]}}


def test_only_what_an_output_needs_runs(runner, pool):
    runner.run(workflow(n1=("Give", {"value": 3}), n2=("Fail", {"value": 1}), n3=("Show", {"value": ["1", 0]})))
    assert pool.executed() == ["Give", "Show"]


def test_constants_arrive_as_the_declared_type(runner):
    report = runner.run(workflow(n1=("Add", {"a": "3", "b": 4.0}), n2=("Show", {"value": ["1", 0]})))
    assert report.outputs["2"] == [[7]]


def test_a_list_output_makes_the_next_node_run_once_per_element(runner):
    report = runner.run(workflow(n1=("Spread", {"count": 3}), n2=("Add", {"a": ["1", 0], "b": 10}), n3=("Show", {"value": ["2", 0]})))
    assert report.outputs["2"] == [[10, 11, 12]]
    assert report.row("2").calls == 3
    assert report.ui["3"] == {"text": ["10", "11", "12"]}


def test_a_shorter_list_repeats_its_last_element(runner):
    report = runner.run(workflow(
        n1=("Spread", {"count": 3}), n2=("Spread", {"count": 2}), n3=("Add", {"a": ["1", 0], "b": ["2", 0]}),
        n4=("Show", {"value": ["3", 0]})))
    assert report.outputs["3"] == [[0, 2, 3]]


def test_a_node_that_takes_lists_is_called_once_with_all_of_them(runner):
    report = runner.run(workflow(n1=("Spread", {"count": 4}), n2=("Sum", {"numbers": ["1", 0]}), n3=("Show", {"value": ["2", 0]})))
    assert report.outputs["2"] == [[6]]
    assert report.row("2").calls == 1


def test_an_empty_list_fails_the_node_that_gets_it_by_input(runner):
    report = runner.run(workflow(n1=("Spread", {"count": 0}), n2=("Add", {"a": ["1", 0], "b": 1}), n3=("Show", {"value": ["2", 0]})))
    assert report.errors[0].node_id == "2" and report.errors[0].input == "a"
    assert "empty list" in report.errors[0].message


def test_one_instance_serves_all_calls_of_a_node_and_another_those_of_another(runner):
    report = runner.run(workflow(
        n1=("Spread", {"count": 3}), n2=("Count", {"value": ["1", 0]}), n3=("Count", {"value": 0}),
        n4=("Show", {"value": ["2", 0]}), n5=("Show", {"value": ["3", 0]})))
    assert report.outputs["2"] == [[1, 2, 3]]
    assert report.outputs["3"] == [[1]]


def test_runners_do_not_share_instances(pack, pool):
    plan = pack()
    flow = workflow(n1=("Count", {"value": 0}), n2=("Show", {"value": ["1", 0]}))
    assert [Runner(pool, [plan]).run(flow).outputs["1"] for _ in range(2)] == [[[1]], [[1]]]


HIDDEN = '''
class Ask:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("STRING", "STRING"), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}, "hidden": {"me": "UNIQUE_ID", "all": "PROMPT", "png": "EXTRA_PNGINFO"}}
    def run(self, me, all, png):
        assert png is None
        return (me, all[me]["class_type"])

class Loose:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("STRING",), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"a": ("INT",)}}
    def run(self, **given):
        return (",".join(sorted(given)),)

class Later:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("INT",), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}
    async def run(self):
        import asyncio
        await asyncio.sleep(0)
        return (5,)

class Bare:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("INT", "INT"), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"what": ("STRING",)}}
    def run(self, what):
        return {"none": None, "number": 5, "short": (1,), "graph": {"expand": {}}, "long": (1, 2, 3), "list": [1, 2]}[what]
'''


def test_hidden_inputs_tell_a_node_its_id_and_the_prompt(pack, pool):
    report = Runner(pool, [pack(nodes=HIDDEN)]).run(workflow(n4=("Ask", {})))
    assert report.outputs["4"] == [["4"], ["Ask"]]


def test_a_constant_the_class_does_not_declare_is_left_out(pack, pool):
    report = Runner(pool, [pack(nodes=HIDDEN)]).run(workflow(n1=("Loose", {"a": 1, "extra": 2})))
    assert report.outputs["1"] == [["a"]]


def test_a_coroutine_function_is_awaited(pack, pool):
    assert Runner(pool, [pack(nodes=HIDDEN)]).run(workflow(n1=("Later", {}))).outputs["1"] == [[5]]


@pytest.mark.parametrize(("what", "words"), [
    ("none", "returned None, not a tuple"), ("number", "returned 5, not a tuple"),
    ("short", "returned 1 value for its 2 outputs"), ("graph", "graph to expand"),
])
def test_an_answer_that_is_none_of_a_v1_nodes_fails_by_name(pack, pool, what, words):
    report = Runner(pool, [pack(nodes=HIDDEN)]).run(workflow(n1=("Bare", {"what": what})))
    assert words in report.errors[0].message


@pytest.mark.parametrize("what", ["long", "list"])
def test_more_values_than_outputs_and_lists_for_tuples_are_taken_as_comfyui_takes_them(pack, pool, what):
    assert Runner(pool, [pack(nodes=HIDDEN)]).run(workflow(n1=("Bare", {"what": what}))).outputs["1"] == [[1], [2]]


def test_a_row_says_where_a_node_ran(runner, pool):
    row = runner.run(workflow(n1=("Show", {"value": 3}))).row("1")
    assert (row.pack, row.env, row.generation, row.state) == ("a", "env-a", 1, "done")
    assert row.pid and row.python.startswith("3.")


def test_a_watcher_hears_each_node_begin_and_end(pack, pool):
    diary = Diary()
    Runner(pool, [pack()], watcher=diary).run(workflow(n1=("Give", {"value": 1}), n2=("Show", {"value": ["1", 0]})))
    assert diary.heard == [("starting", 2), ("started", "1"), ("ended", ("1", "done")), ("started", "2"), ("ended", ("2", "done"))]


def test_a_call_tells_the_worker_its_node_and_class(runner, pool):
    runner.run(workflow(n1=("Show", {"value": 1})))
    context = pool.options[-1].node
    assert (context.node_id, context.class_type) == ("1", "Show") and context.prompt_id


MEET = '''
import threading
class Meet:
    """Comes back only when a node of another environment runs at the same time."""
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", (), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}
    def run(self):
        import builtins
        builtins.comfy_env_test_meeting.wait(20)
        return ()
class %s(Meet):
    pass
del Meet
'''


def test_nodes_of_different_environments_run_at_the_same_time(pack, pool, monkeypatch):
    monkeypatch.setattr("builtins.comfy_env_test_meeting", threading.Barrier(2), raising=False)
    runner = Runner(pool, [pack("a", MEET % "Left"), pack("b", MEET % "Right")])
    assert runner.run(workflow(n1=("Left", {}), n2=("Right", {}))).ok


def test_nodes_of_one_environment_run_in_turn(pack, pool):
    busy = threading.Lock()
    original = pool.call

    def alone(plan, target, *args, **more):
        assert busy.acquire(blocking=False), "two calls of one environment at once"
        try:
            return original(plan, target, *args, **more)
        finally:
            busy.release()

    pool.call = alone
    flow = workflow(**{f"n{n}": ("Show", {"value": n}) for n in range(12)})
    assert Runner(pool, [pack()]).run(flow).ok
