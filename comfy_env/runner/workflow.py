"""A workflow as ComfyUI's "Save (API format)" writes it: `{"id": {"class_type": …, "inputs": {…}, "_meta": {…}}}`."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfy_env.runner.problems import NotAWorkflow, WorkflowError
from comfy_env.runner.values import DEEPEST, shown, too_deep


@dataclass(frozen=True)
class Link:
    """An input that takes its value from output `slot` of another node."""

    node: str
    slot: int


@dataclass(frozen=True)
class Node:
    """One node: constants as they are, links as `Link`."""

    id: str
    class_type: str
    inputs: Mapping[str, Any]
    title: str = ""

    @property
    def links(self) -> dict[str, Link]:
        return {name: value for name, value in self.inputs.items() if isinstance(value, Link)}


@dataclass(frozen=True)
class Workflow:
    """A parsed workflow; `prompt` is the document it was made from, handed to nodes that ask for PROMPT."""

    nodes: Mapping[str, Node]
    prompt: Mapping[str, Any] = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Workflow:
        """Read the file; raises NotAWorkflow with the line that is not JSON, or with what is missing."""
        try:
            return cls.parse(json.loads(Path(path).read_text(encoding="utf-8-sig")))
        except RecursionError as error:
            raise NotAWorkflow(f"{path} is nested too deep to be read: a workflow is an object of nodes, each with inputs") from error
        except WorkflowError:
            raise
        except ValueError as error:   # no JSON, no UTF-8, or a number of more digits than Python reads
            raise NotAWorkflow(f"{path} is not JSON: {error}") from error
        except OSError as error:
            raise NotAWorkflow(f"{path} cannot be read: {error.strerror or error}") from error

    @classmethod
    def parse(cls, document: Any) -> Workflow:
        """Return the workflow in a document; raises NotAWorkflow."""
        if not isinstance(document, Mapping):
            raise NotAWorkflow(f"a workflow is an object of nodes, not {type(document).__name__}")
        if isinstance(document.get("nodes"), list):
            raise NotAWorkflow("this is the editor's own format", hint='in ComfyUI use "Save (API format)" or "Export (API)"')
        if isinstance(document.get("prompt"), Mapping):
            document = document["prompt"]
        prompt = {str(id): _plain(given) for id, given in document.items()}
        return cls({id: _node(id, given) for id, given in prompt.items()}, prompt)

    def with_inputs(self, values: Mapping[str, Any]) -> Workflow:
        """Return the same workflow with other constants, given as {"node id.input": value}."""
        document = copy.deepcopy(dict(self.prompt))
        for place, value in values.items():
            id, _, name = place.rpartition(".")
            if id not in self.nodes:
                raise NotAWorkflow(f"there is no node {id!r} to set {place!r} of; name an input as NODE.INPUT")
            _known_input(id, name, document[id].get("inputs") or {})
            document[id]["inputs"][name] = value
        return self.parse(document)


def _known_input(id: str, name: str, inputs: Mapping[str, Any]) -> None:
    if name not in inputs:
        near = difflib.get_close_matches(name, inputs, 1)
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise NotAWorkflow(f"node {id} has no input {name!r}; it has {', '.join(inputs) or 'none'}", hint=hint)


def _node(id: str, given: Any) -> Node:
    if not isinstance(given, Mapping):
        raise NotAWorkflow(f"it is not an object but {shown(given)}", node_id=id)
    kind = given.get("class_type")
    if not isinstance(kind, str) or not kind:
        wrong = f"its class_type is {shown(kind)}, not a name" if "class_type" in given else "it has no class_type"
        raise NotAWorkflow(wrong, node_id=id)
    inputs = given.get("inputs", {})
    if not isinstance(inputs, Mapping):
        raise NotAWorkflow(f"its inputs are not an object but {type(inputs).__name__}", node_id=id, class_type=kind)
    if too_deep(given):
        raise NotAWorkflow(f"it is nested deeper than {DEEPEST} levels", node_id=id, class_type=kind)
    return Node(id, kind, {name: _input(value) for name, value in inputs.items()}, _title(given))


def _plain(given: Any) -> Any:
    """Return a node's object with texts as the names of its inputs, as a file would have them."""
    if not isinstance(given, Mapping) or not isinstance(given.get("inputs"), Mapping):
        return given
    return {**given, "inputs": {str(name): value for name, value in given["inputs"].items()}}


def _title(given: Mapping[str, Any]) -> str:
    meta = given.get("_meta")
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return title if isinstance(title, str) else ""


def _input(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int:
        return Link(value[0], value[1])
    if isinstance(value, Mapping) and set(value) == {"__value__"}:
        return value["__value__"]
    return value
