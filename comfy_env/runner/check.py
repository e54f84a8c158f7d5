"""Finds everything that is wrong with a workflow before any node of it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from comfy_env.runner import order, widgets
from comfy_env.runner.catalog import Catalog, Input, NodeClass
from comfy_env.runner.problems import (
    BadLink,
    LinkCycle,
    MissingInput,
    NoOutput,
    UnknownClass,
    WorkflowError,
    WrongType,
    WrongValue,
)
from comfy_env.runner.values import shown
from comfy_env.runner.workflow import Link, Node, Workflow


def problems(workflow: Workflow, catalog: Catalog) -> list[WorkflowError]:
    """Return every problem found: of all nodes for classes and circles, else of the nodes that would run."""
    unknown = [_unknown(node, catalog) for node in workflow.nodes.values() if node.class_type not in catalog.classes]
    circle = list(_circle(workflow))
    ends = order.outputs(workflow, catalog)
    idle = [] if ends or unknown else [NoOutput("no node of it is an output node, so there is nothing to run")]
    wanted = order.needed(workflow, ends)
    found = [problem for id in workflow.nodes if id in wanted for problem in _of_node(workflow, workflow.nodes[id], catalog)]
    return [*unknown, *circle, *idle, *found]


def _unknown(node: Node, catalog: Catalog) -> WorkflowError:
    if node.class_type in catalog.broken:
        return UnknownClass(f"its declaration is broken: {catalog.broken[node.class_type]}", node_id=node.id, class_type=node.class_type)
    unasked = "; ".join(f"{key}: {error.message}" for key, error in catalog.failed.items())
    message = "no pack offers this class" + (f"; environments that could not be asked: {unasked}" if unasked else "")
    hints = [error.hint for error in catalog.failed.values() if error.hint]
    return UnknownClass(message, node_id=node.id, class_type=node.class_type, hint=hints[0] if hints else "name the pack's folder")


def _circle(workflow: Workflow) -> Iterator[WorkflowError]:
    found = order.cycle(workflow)
    if found:
        first = workflow.nodes[found[0]]
        error = LinkCycle(f"its links lead in a circle: {' <- '.join(found)}", node_id=first.id, class_type=first.class_type)
        error.cycle = found
        yield error


def _of_node(workflow: Workflow, node: Node, catalog: Catalog) -> Iterator[WorkflowError]:
    kind = catalog.classes.get(node.class_type)
    if kind is None:
        return
    for name, declared in kind.inputs.items():
        if declared.required and name not in node.inputs:
            yield MissingInput(f"{widgets.told(declared.type)} is required", node_id=node.id, class_type=kind.name, input=name)
    for name, value in node.inputs.items():
        if isinstance(value, Link):
            yield from _of_link(workflow, node, name, value, kind, catalog)
        elif name in kind.inputs:
            yield from _of_value(node, kind, kind.inputs[name], value)


def _of_link(workflow: Workflow, node: Node, name: str, link: Link, kind: NodeClass, catalog: Catalog) -> Iterator[WorkflowError]:
    where: dict[str, Any] = {"node_id": node.id, "class_type": kind.name, "input": name}
    source = workflow.nodes.get(link.node)
    if source is None:
        yield BadLink(f"it is linked to node {link.node}, which does not exist", **where)
        return
    giver = catalog.classes.get(source.class_type)
    if giver is None:
        return
    if not 0 <= link.slot < len(giver.returns):
        yield BadLink(f"node {link.node} ({giver.name}) has {len(giver.returns)} outputs, none of them number {link.slot}", **where)
    elif name in kind.inputs and not widgets.fits(giver.returns[link.slot], kind.inputs[name].type):
        given, wanted = widgets.told(giver.returns[link.slot]), widgets.told(kind.inputs[name].type)
        yield WrongType(f"node {link.node} ({giver.name}) gives {given}, wanted is {wanted}", **where)


def _of_value(node: Node, kind: NodeClass, declared: Input, value: Any) -> Iterator[WorkflowError]:
    where: dict[str, Any] = {"node_id": node.id, "class_type": kind.name, "input": declared.name}
    if isinstance(value, list) and widgets.is_linked_only(declared):
        yield BadLink(f"{shown(value)} is not a link: it is [node id, output number]", **where)
        return
    try:
        reason = widgets.refusal(declared, widgets.converted(declared, value))
    except ValueError as error:
        yield WrongType(str(error), **where)
        return
    if reason and not kind.validates & {declared.name, "**"}:
        yield WrongValue(reason, **where)
