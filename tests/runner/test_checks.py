"""Everything wrong with a workflow is found before a node runs, by name, node and input."""

from __future__ import annotations

import pytest

from comfy_env.errors import EnvNotBuilt
from comfy_env.runner import (
    BadLink,
    LinkCycle,
    MissingInput,
    NoOutput,
    Runner,
    UnknownClass,
    WorkflowRefused,
    WrongType,
    WrongValue,
)

from .conftest import workflow

SHOWN = {"n9": ("Show", {"value": ["1", 0]})}


@pytest.mark.parametrize(("nodes", "kind", "node", "input", "words"), [
    ({"n1": ("Nope", {})}, UnknownClass, "1", "", "no pack offers"),
    ({"n1": ("Give", {})}, MissingInput, "1", "value", "INT is required"),
    ({"n1": ("Add", {"a": ["7", 0], "b": 1})}, BadLink, "1", "a", "node 7, which does not exist"),
    ({"n1": ("Add", {"a": ["2", 3], "b": 1}), "n2": ("Give", {"value": 1})}, BadLink, "1", "a", "none of them number 3"),
    ({"n1": ("Give", {"value": "many"})}, WrongType, "1", "value", "'many' is not INT"),
    ({"n1": ("Give", {"value": 101})}, WrongValue, "1", "value", "above the most, 100"),
    ({"n1": ("Give", {"value": -1})}, WrongValue, "1", "value", "below the least, 0"),
])
def test_a_problem_is_named_with_its_node_and_input(runner, nodes, kind, node, input, words):
    (problem,) = runner.check(workflow(**nodes, **SHOWN))
    assert (type(problem), problem.node_id, problem.input) == (kind, node, input)
    assert words in str(problem)


def test_a_circle_is_named_with_every_node_on_it(runner):
    problems = runner.check(workflow(n1=("Add", {"a": ["2", 0], "b": 1}), n2=("Add", {"a": ["1", 0], "b": 1}), **SHOWN))
    assert [type(problem) for problem in problems] == [LinkCycle]
    assert set(problems[0].cycle) == {"1", "2"} and problems[0].cycle[0] == problems[0].cycle[-1]


def test_a_workflow_without_output_node_has_nothing_to_run(runner):
    assert [type(problem) for problem in runner.check(workflow(n1=("Give", {"value": 1})))] == [NoOutput]


def test_a_node_nothing_asks_for_may_be_incomplete(runner):
    assert runner.check(workflow(n1=("Give", {"value": 1}), n2=("Add", {}), **SHOWN)) == []


def test_nothing_runs_when_anything_is_wrong_and_all_problems_are_told(runner, pool):
    with pytest.raises(WorkflowRefused) as caught:
        runner.run(workflow(n1=("Add", {"a": "x"}), **SHOWN))
    assert [type(problem) for problem in caught.value.problems] == [MissingInput, WrongType]
    assert "2 problems" in str(caught.value)
    assert pool.executed() == []


CHOOSY = '''
class Pick:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", (), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"mode": (["soft", "hard"],), "image": ("IMAGE",), "text": ("STRING", {"multiline": True})}}
    def run(self, mode, image, text):
        return ()

class Text:
    FUNCTION, RETURN_TYPES = "run", ("STRING", "IMAGE,MASK", "*")
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}
    def run(self):
        return ("a", "b", "c")

class Strict:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", (), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"size": ("INT", {"max": 5})}}
    @classmethod
    def VALIDATE_INPUTS(cls, size):
        return True if size % 2 == 0 else "sizes are even"
    def run(self, size):
        return ()
'''


@pytest.mark.parametrize(("inputs", "kind"), [
    ({"mode": "soft", "image": ["2", 1], "text": "x"}, None),
    ({"mode": "soft", "image": ["2", 2], "text": 5}, None),
    ({"mode": "wild", "image": ["2", 1], "text": "x"}, WrongValue),
    ({"mode": "soft", "image": ["2", 0], "text": "x"}, WrongType),
    ({"mode": "soft", "image": "photo.png", "text": "x"}, WrongType),
    ({"mode": "soft", "image": [2, 1], "text": "x"}, BadLink),
])
def test_types_are_judged_as_comfyui_judges_them(pack, pool, inputs, kind):
    found = Runner(pool, [pack(nodes=CHOOSY)]).check(workflow(n1=("Pick", inputs), n2=("Text", {})))
    assert [type(problem) for problem in found] == ([kind] if kind else [])


@pytest.mark.parametrize(("size", "words"), [(8, None), (7, "sizes are even")])
def test_a_packs_own_validation_replaces_the_range_check(pack, pool, size, words):
    found = Runner(pool, [pack(nodes=CHOOSY)]).check(workflow(n1=("Strict", {"size": size})))
    assert [problem.message for problem in found] == ([words] if words else [])


def test_an_environment_that_is_not_built_explains_the_unknown_class(runner, pool):
    pool.closed_envs["env-a"] = EnvNotBuilt("env-a is not built", env="env-a", hint="comfy-env build")
    (problem,) = runner.check(workflow(n1=("Show", {"value": 1})))
    assert "env-a is not built" in problem.message and problem.hint == "comfy-env build"


def test_an_environment_that_is_built_later_is_asked_again(runner, pool):
    pool.closed_envs["env-a"] = EnvNotBuilt("env-a is not built", env="env-a")
    assert runner.check(workflow(n1=("Show", {"value": 1})))
    pool.closed_envs.clear()
    assert runner.check(workflow(n1=("Show", {"value": 1}))) == []


def test_a_class_whose_inputs_cannot_be_read_does_not_hide_the_others(pack, pool):
    broken = CHOOSY + "\nclass Broken:\n    FUNCTION = 'run'\n    @classmethod\n    def INPUT_TYPES(cls):\n        return 1 / 0\n"
    found = Runner(pool, [pack(nodes=broken)]).check(workflow(n1=("Strict", {"size": 2}), n2=("Broken", {})))
    assert [type(problem) for problem in found] == [UnknownClass]
    assert "ZeroDivisionError" in found[0].message
