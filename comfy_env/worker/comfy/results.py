"""Takes apart what a node returns, so that nothing in it needs a class of ComfyUI to cross.

Blockers travel beside the values, by their place: a dict of a user can never be taken for one.
"""

from __future__ import annotations

import sys
from typing import Any

PARTS = ("ui", "result", "expand")


def taken_apart(value: Any) -> dict[str, Any]:
    """Return the plain message of what a node's function returned."""
    if is_blocker(value):
        return {"kind": "blocker", "message": value.message}
    if _is_output(value):
        return _output(value)
    if isinstance(value, dict) and any(part in value for part in PARTS):
        return {"kind": "dict", "rest": {key: item for key, item in value.items() if key != "result"},
                "result": taken_apart(value["result"]) if "result" in value else None}
    if isinstance(value, (tuple, list)):
        return _row(value)
    return {"kind": "value", "value": value}


def _row(value: Any) -> dict[str, Any]:
    """Return a tuple or list of outputs; a blocker in it, or in a list in it, is told by its place."""
    blockers: list[tuple[tuple[int, ...], Any]] = []
    items = list(value)
    for slot, item in enumerate(items):
        if is_blocker(item):
            blockers.append(((slot,), item.message))
            items[slot] = None
        elif type(item) is list and any(map(is_blocker, item)):
            blockers += [((slot, at), one.message) for at, one in enumerate(item) if is_blocker(one)]
            items[slot] = [None if is_blocker(one) else one for one in item]
    return {"kind": "tuple" if isinstance(value, tuple) else "list", "values": items, "blockers": blockers}


def _output(value: Any) -> dict[str, Any]:
    ui = value.ui
    return {
        "kind": "output",
        "args": _row(tuple(value.args)),
        "ui": ui if ui is None or isinstance(ui, dict) else ui.as_dict(),
        "expand": value.expand,
        "block": value.block_execution,
    }


def is_blocker(value: Any) -> bool:
    """Tell whether a value is core's ExecutionBlocker; a class nobody imported has no instances."""
    cls = getattr(sys.modules.get("comfy_execution.graph_utils"), "ExecutionBlocker", None)
    return cls is not None and isinstance(value, cls)


def _is_output(value: Any) -> bool:
    cls = getattr(sys.modules.get("comfy_api.internal"), "_NodeOutputInternal", None)
    return cls is not None and isinstance(value, cls)
