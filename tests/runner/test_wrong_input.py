"""Whatever a file holds and a pack answers, the runner ends with errors that name node and class, never with a traceback."""

from __future__ import annotations

import json
import random

import pytest

from comfy_env.errors import ComfyEnvError
from comfy_env.runner import NotAWorkflow, Runner, Workflow, WorkflowRefused
from comfy_env.runner.values import DEEPEST, shown, too_deep

from .conftest import NODES, workflow

SHOW = "class N:\n    FUNCTION, RETURN_TYPES, OUTPUT_NODE = 'run', ('INT',), True\n"
NO_INPUTS = "    @classmethod\n    def INPUT_TYPES(cls): return {}\n"


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


# ---------------------------------------------------------------- the file

@pytest.mark.parametrize("text", ["[" * 100_000, '{"1": {"class_type": "K", "inputs": {"a": ' + "[" * 100_000])
def test_json_nested_a_hundred_thousand_levels_is_refused_in_words(tmp_path, text):
    path = tmp_path / "w.json"
    path.write_text(text + text.translate({ord("["): "]", ord("{"): "}"})[::-1])
    with pytest.raises(NotAWorkflow, match="nested too deep to be read"):
        Workflow.load(path)


def test_a_node_nested_deeper_than_anything_sensible_is_refused_by_name():
    with pytest.raises(NotAWorkflow, match=rf"node 7 \(K\): it is nested deeper than {DEEPEST} levels"):
        Workflow.parse({"7": {"class_type": "K", "inputs": {"a": nested(DEEPEST)}}})
    assert Workflow.parse({"7": {"class_type": "K", "inputs": {"a": nested(DEEPEST // 2)}}}).nodes["7"]


def test_a_number_of_five_thousand_digits_is_refused_in_words(tmp_path):
    (tmp_path / "w.json").write_text('{"1": {"class_type": "K", "inputs": {"a": ' + "9" * 5000 + "}}}")
    with pytest.raises(NotAWorkflow, match=r"w\.json is not JSON"):
        Workflow.load(tmp_path / "w.json")


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "w.json").write_text('{"1": {"class_type": "K", "inputs": {}}}', encoding="utf-8-sig")
    assert list(Workflow.load(tmp_path / "w.json").nodes) == ["1"]


@pytest.mark.parametrize(("node", "words"), [
    (None, "it is not an object but None"), ([1], r"it is not an object but \[1\]"),
    ({"class_type": 3}, "its class_type is 3, not a name"), ({"class_type": ""}, "its class_type is '', not a name"),
])
def test_a_node_that_is_none_is_refused_by_its_number(node, words):
    with pytest.raises(NotAWorkflow, match=f"node 7: {words}"):
        Workflow.parse({"7": node})


@pytest.mark.parametrize("value", ["x" * 1_000_000, list(range(1_000_000)), {str(n): n for n in range(100_000)}])
def test_a_huge_value_in_the_wrong_place_is_told_in_a_short_line(runner, value):
    with pytest.raises(WorkflowRefused) as caught:
        runner.run(workflow(n1=("Give", {"value": value}), n2=("Show", {"value": ["1", 0]})))
    assert "node 1 (Give), input 'value'" in str(caught.value) and len(str(caught.value)) < 500


def test_a_chain_of_ten_thousand_nodes_and_a_circle_of_as_many_are_no_trouble(runner):
    links = {str(n): {"class_type": "Give", "inputs": {"value": [str(n + 1), 0]}} for n in range(10_000)}
    show = {"s": {"class_type": "Show", "inputs": {"value": ["0", 0]}}}
    problems = runner.check(Workflow.parse({**links, **show}))
    assert [type(problem).__name__ for problem in problems] == ["BadLink"]
    circle = Workflow.parse({**links, **show, "9999": {"class_type": "Give", "inputs": {"value": ["0", 0]}}})
    assert "LinkCycle" in [type(problem).__name__ for problem in runner.check(circle)]


ATOMS = [
    None, True, 0, -1, 2**70, 10**4000, 1.5, float("nan"), float("inf"), "", "x", "\ud800", [], {}, [1], ["1", 0], ["1", True], ["1", 5],
    ["9", 0], ["2", -1], [1, 0], ["1", "0"], {"a": 1}, {"__value__": ["1", 0]}, {1: 2, "a": 1}, nested(50), nested(900), object(),
    ("1", 0), b"x",
]


@pytest.mark.parametrize("seed", range(4))
def test_no_document_whatever_ends_in_a_traceback(runner, seed):
    pick = random.Random(seed)
    names = ["value", "a", "b", "count", "numbers", "", None, 7]
    kinds = ["Give", "Add", "Spread", "Sum", "Count", "Show", "Show", "Fail", "Nope", None, 3, []]

    def node():
        inputs = {pick.choice(names): pick.choice([1, 3, ["1", 0], ["2", 0], *ATOMS]) for _ in range(pick.choice([0, 0, 1, 4]))}
        inputs |= {name: pick.choice([1, 1, ["1", 0]]) for name in ("value", "a", "count", "numbers")}
        kind = pick.choice(kinds if pick.random() < 0.1 else kinds[:8])
        return {"class_type": kind, "inputs": inputs, "_meta": pick.choice(ATOMS[:12])}

    ran = 0
    for _ in range(300):
        document = {pick.choice([str(n), str(n), n]): node() if pick.random() < 0.95 else pick.choice(ATOMS) for n in (1, 2, 3)}
        try:
            flow = Workflow.parse(document)
            flow = flow.with_inputs({f"{next(iter(flow.nodes))}.value": pick.choice(ATOMS)}) if pick.random() < 0.3 else flow
            json.dumps(runner.run(flow).as_json(), default=str)
            ran += 1
        except ComfyEnvError as error:
            assert str(error)
    assert ran, "every document was refused: nothing was tried"


# ---------------------------------------------------------------- the pack

@pytest.mark.parametrize(("answer", "words"), [
    ("None", "it returned None, not a tuple of its 1 output"), ("'text'", "it returned 'text', not a tuple"),
    ("()", "0 values for its 1 output"),
    ("{'ui': 3}", "its 'ui' is 3; a dict of lists is wanted"), ("{'ui': {'a': 'text'}}", "its 'ui' holds 'a': 'text'"),
    ("{'ui': {(1, 2): [1]}}", "its 'ui' holds (1, 2)"), ("{'images': [1]}", "a dict of 'images'; a dict holds 'ui', 'result' or both"),
    ("{'result': 3}", "it returned 3, not a tuple"), ("{'expand': {}}", "which only ComfyUI can run"),
    ("object()", "it returned a value of type object, not a tuple"),
])
def test_an_answer_no_node_may_give_is_an_error_of_that_node_and_of_no_other(pack, pool, answer, words):
    nodes = NODES + SHOW + NO_INPUTS + f"    def run(self): return {answer}\n"
    report = Runner(pool, [pack(nodes=nodes)]).run(workflow(n1=("N", {}), n2=("Give", {"value": 1}), n3=("Show", {"value": ["2", 0]})))
    (error,) = report.errors
    assert (error.node_id, error.class_type) == ("1", "N") and words in error.message
    assert report.row("3").state == "done"


@pytest.mark.parametrize("answer", ["{}", "{'ui': {}}", "{'ui': None, 'result': (1,)}"])
def test_a_dict_without_a_result_is_an_answer_without_values(pack, pool, answer):
    report = Runner(pool, [pack(nodes=SHOW + NO_INPUTS + f"    def run(self): return {answer}\n")]).run(workflow(n1=("N", {})))
    assert report.ok


def test_an_answer_nobody_foresaw_fails_its_node_alone(pack, pool):
    """A NaN far down in what IS_CHANGED says: too deep to be looked through."""
    deep = "    @classmethod\n    def IS_CHANGED(cls):\n        v = []\n        for _ in range(100000): v = [v]\n        return v\n"
    nodes = NODES + SHOW + NO_INPUTS + deep + "    def run(self): return (1,)\n"
    report = Runner(pool, [pack(nodes=nodes)]).run(workflow(n1=("N", {}), n3=("Show", {"value": 1})))
    assert report.row("1").state == "failed" and "RecursionError" in report.errors[0].message
    assert report.row("3").state == "done"


@pytest.mark.parametrize(("attributes", "words"), [
    ("RETURN_TYPES = 'IMAGE'", "its RETURN_TYPES is the one text 'IMAGE': write ('IMAGE',)"), ("RETURN_TYPES = None", "not iterable"),
    ("FUNCTION = 'gone'", "its FUNCTION is 'gone', which names no method of it"), ("FUNCTION = None", "its FUNCTION is None"),
])
def test_a_class_that_cannot_be_used_is_refused_with_what_is_wrong(pack, pool, attributes, words):
    nodes = SHOW + NO_INPUTS + f"    def run(self): return (1,)\n    {attributes}\n"
    with pytest.raises(WorkflowRefused) as caught:
        Runner(pool, [pack(nodes=nodes)]).run(workflow(n1=("N", {})))
    assert "node 1 (N): its declaration is broken" in str(caught.value) and words in str(caught.value)


def test_bounds_that_are_no_numbers_bound_nothing(pack, pool):
    inputs = "    @classmethod\n    def INPUT_TYPES(cls): return {'required': {'value': ('INT', {'min': 'a', 'max': []})}}\n"
    report = Runner(pool, [pack(nodes=SHOW + inputs + "    def run(self, value): return (value,)\n")]).run(workflow(n1=("N", {"value": 3})))
    assert report.outputs["1"] == [[3]]


def test_values_are_shown_shortly_and_depth_is_found_without_recursion():
    assert shown("x" * 200).startswith("'xxx") and len(shown("x" * 200)) <= 80
    assert shown(10**4000)[:3] and shown(None) == "None" and shown(object()) == "a value of type object"
    assert too_deep(nested(50_000)) and not too_deep({"a": [1, {"b": 2}]})
