"""A workflow file is read as ComfyUI writes it, and anything else is refused with what to do."""

from __future__ import annotations

import json

import pytest

from comfy_env.runner import NotAWorkflow, Workflow
from comfy_env.runner.workflow import Link


def test_links_and_constants_are_told_apart():
    nodes = Workflow.parse({"3": {"class_type": "K", "inputs": {"a": ["1", 0], "b": [1, 2], "c": "x", "d": {"__value__": ["1", 0]}}}}).nodes
    assert nodes["3"].links == {"a": Link("1", 0)}
    assert nodes["3"].inputs["b"] == [1, 2]
    assert nodes["3"].inputs["d"] == ["1", 0]


def test_a_title_comes_from_the_meta_part():
    node = Workflow.parse({"1": {"class_type": "K", "inputs": {}, "_meta": {"title": "My node"}}}).nodes["1"]
    assert (node.title, node.class_type) == ("My node", "K")


def test_a_posted_prompt_is_read_like_a_saved_one():
    inner = {"1": {"class_type": "K", "inputs": {}}}
    assert Workflow.parse({"prompt": inner, "client_id": "x"}).nodes == Workflow.parse(inner).nodes


def test_the_editors_own_format_is_refused_with_the_right_menu_entry():
    with pytest.raises(NotAWorkflow) as caught:
        Workflow.parse({"nodes": [{"id": 1, "type": "K"}], "links": []})
    assert "API" in caught.value.hint


@pytest.mark.parametrize(("document", "words"), [
    ([], "not list"),
    ({"7": {"inputs": {}}}, "node 7: it has no class_type"),
    ({"7": {"class_type": "K", "inputs": []}}, "node 7 (K): its inputs are not an object"),
])
def test_a_malformed_document_is_refused_by_node(document, words):
    with pytest.raises(NotAWorkflow) as caught:
        Workflow.parse(document)
    assert words in str(caught.value)


def test_a_file_that_is_not_json_is_refused_with_its_line(tmp_path):
    (tmp_path / "w.json").write_text('{\n "1": }', encoding="utf-8")
    with pytest.raises(NotAWorkflow, match="line 2"):
        Workflow.load(tmp_path / "w.json")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(NotAWorkflow, match=r"gone\.json cannot be read"):
        Workflow.load(tmp_path / "gone.json")


def test_inputs_can_be_set_without_changing_the_original(tmp_path):
    (tmp_path / "w.json").write_text(json.dumps({"1": {"class_type": "K", "inputs": {"a": 1}}}), encoding="utf-8")
    first = Workflow.load(tmp_path / "w.json")
    assert first.with_inputs({"1.a": 5}).nodes["1"].inputs["a"] == 5
    assert first.nodes["1"].inputs["a"] == 1


def test_setting_an_input_of_a_node_that_is_not_there_is_refused():
    with pytest.raises(NotAWorkflow, match="no node '9'"):
        Workflow.parse({"1": {"class_type": "K", "inputs": {}}}).with_inputs({"9.a": 5})
