"""Which nodes have to run, and after which others."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from comfy_env.runner.catalog import Catalog
from comfy_env.runner.workflow import Workflow


def outputs(workflow: Workflow, catalog: Catalog) -> list[str]:
    """Return the ids of the output nodes: they alone are a reason to run anything."""
    return [node.id for node in workflow.nodes.values() if _is_output(catalog, node.class_type)]


def _is_output(catalog: Catalog, class_type: str) -> bool:
    return class_type in catalog.classes and catalog.classes[class_type].output_node


def needed(workflow: Workflow, ends: Iterable[str]) -> set[str]:
    """Return `ends` and every node they depend on."""
    found: set[str] = set()
    todo = list(ends)
    while todo:
        id = todo.pop()
        if id not in found and id in workflow.nodes:
            found.add(id)
            todo.extend(link.node for link in workflow.nodes[id].links.values())
    return found


def graph(workflow: Workflow, ids: Iterable[str]) -> dict[str, list[str]]:
    """Return {node: the nodes it depends on} for `ids`, which must be closed under dependency."""
    chosen = set(ids)
    return {id: sorted({link.node for link in node.links.values()} & chosen) for id, node in workflow.nodes.items() if id in chosen}


def cycle(workflow: Workflow) -> tuple[str, ...]:
    """Return the ids along one circle of links, the first again at the end; empty if there is none."""
    try:
        TopologicalSorter(graph(workflow, workflow.nodes)).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()
