"""Collects what a node is called with: constants, values of linked nodes, hidden inputs. Every value is a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_env.runner import widgets
from comfy_env.runner.catalog import NodeClass
from comfy_env.runner.mapping import Outcome
from comfy_env.runner.workflow import Link, Node


def gathered(node: Node, kind: NodeClass, results: Mapping[str, Outcome], prompt: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return {argument: list of values} of a node whose linked nodes have all run."""
    given = constants(node, kind)
    for name, link in node.links.items():
        given[name] = results[link.node].outputs[link.slot]
    return {**given, **hidden(node, kind, prompt)}


def known(node: Node, kind: NodeClass, prompt: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what is known before anything runs: linked inputs are None, as in ComfyUI."""
    return {**constants(node, kind), **{name: [None] for name in node.links}, **hidden(node, kind, prompt)}


def constants(node: Node, kind: NodeClass) -> dict[str, list[Any]]:
    """Return the constant inputs the class declares; one it does not declare is left out."""
    given = {name: value for name, value in node.inputs.items() if not isinstance(value, Link)}
    return {name: [_constant(kind, name, value)] for name, value in given.items() if kind.open or name in kind.inputs}


def _constant(kind: NodeClass, name: str, value: Any) -> Any:
    return widgets.converted(kind.inputs[name], value) if name in kind.inputs else value


def hidden(node: Node, kind: NodeClass, prompt: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the hidden inputs the class asks for; those only a running ComfyUI has are None."""
    known = {"UNIQUE_ID": node.id, "PROMPT": prompt}
    return {name: [known.get(type_) if isinstance(type_, str) else None] for name, type_ in kind.hidden.items()}
