"""Calls one node in its environment: IS_CHANGED, VALIDATE_INPUTS and the function itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfy_env.errors import ComfyEnvError, Interrupted, NodeRaised
from comfy_env.runner import inputs, mapping
from comfy_env.runner.catalog import NodeClass
from comfy_env.runner.signatures import UNKNOWN
from comfy_env.runner.watch import Watcher
from comfy_env.runner.workflow import Node
from comfy_env.values import CallOptions, NodeContext

log = logging.getLogger(__name__)
_NODES = "comfy_env.worker.nodes"


@dataclass(frozen=True)
class NodeCalls:
    """The calls of one run; `token` keeps the instances of different runners apart, `prompt_id` names the run."""

    pool: Any
    watcher: Watcher
    token: str
    prompt_id: str
    prompt: Mapping[str, Any]

    def execute(self, node: Node, kind: NodeClass, results: Mapping[str, mapping.Outcome]) -> tuple[mapping.Outcome, int]:
        """Run the node over its lists; return what it gave and how many calls that took."""
        given = inputs.gathered(node, kind, results, self.prompt)
        key = f"{self.token}:{node.id}"
        answers = [self._call("execute", node, kind, key, kwargs) for kwargs in mapping.calls(kind, given)]
        return mapping.merged(kind, answers), len(answers)

    def changed(self, node: Node, kind: NodeClass) -> Any:
        """Return what IS_CHANGED says, None for a class without it; what it raises counts as "changed"."""
        if "IS_CHANGED" not in kind.methods:
            return None
        given = inputs.known(node, kind, self.prompt)
        try:
            return [self._call("is_changed", node, kind, kwargs) for kwargs in mapping.calls(kind, given)]
        except NodeRaised as error:
            log.warning("IS_CHANGED of node %s (%s) failed, so the node runs: %s", node.id, kind.name, error.message)
            return UNKNOWN

    def refusal(self, node: Node, kind: NodeClass) -> str:
        """Return why VALIDATE_INPUTS refuses the node's constants, '' if it does not."""
        if "VALIDATE_INPUTS" not in kind.methods:
            return ""
        given = {name: values for name, values in inputs.known(node, kind, self.prompt).items() if kind.validates & {name, "**"}}
        given.update(_input_types(node, kind))
        try:
            verdicts = [self._call("validate", node, kind, kwargs) for kwargs in mapping.calls(kind, given)]
        except Interrupted:
            raise
        except ComfyEnvError as error:
            return f"its VALIDATE_INPUTS failed: {error.message}"
        bad = [verdict for verdict in verdicts if verdict is not True]
        return "" if not bad else bad[0] if isinstance(bad[0], str) else "its VALIDATE_INPUTS refuses the inputs"

    def _call(self, verb: str, node: Node, kind: NodeClass, *args: Any) -> Any:
        context = NodeContext(node_id=node.id, prompt_id=self.prompt_id, class_type=kind.name)
        options = CallOptions(node=context, on_progress=lambda progress: self.watcher.progress(node, progress))
        return self.pool.call(kind.home.plan, f"{_NODES}:{verb}", str(kind.home.root), kind.name, *args, options=options)


def _input_types(node: Node, kind: NodeClass) -> dict[str, list[Any]]:
    """Return the argument `input_types` for a VALIDATE_INPUTS that wants it: the types of the linked inputs."""
    if "input_types" not in kind.validates:
        return {}
    return {"input_types": [{name: kind.inputs[name].type for name in node.links if name in kind.inputs}]}
