"""Hidden inputs in a worker: the running graph as a view that asks the host."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Optional

from .. import callback

READS = frozenset({
    "get_node", "has_node", "get_real_node_id", "get_parent_node_id", "get_display_node_id", "all_node_ids", "get_original_prompt",
})


class GraphView:
    """The running prompt with its expanded nodes, to be read only; every question goes to the host."""

    def __getattr__(self, name: str) -> Any:
        if name not in READS:
            raise AttributeError(f"the running prompt can only be read in an isolated worker ({', '.join(sorted(READS))}), not {name}")
        return lambda *args: callback.call_host("comfy_env.graph", name, *args)


def arrived(values: dict[str, Any], graphs: Iterable[str]) -> dict[str, Any]:
    """Return the arguments with the graph's view under the names the host told."""
    return {**values, **{name: GraphView() for name in graphs}}


def keyed(values: dict[str, Any]) -> Optional[dict[Any, Any]]:
    """Return hidden values of a V3 class by core's own names for them."""
    kinds = getattr(sys.modules.get("comfy_api.latest._io"), "Hidden", None)
    return {kinds[name]: value for name, value in values.items()} if kinds is not None else None
