"""Puts together what a node returned: core's blockers and outputs from the plain message a worker sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfy_env.comfyui import core
from comfy_env.packs.nodes import as_declared


def rebuilt(message: dict[str, Any], returns: Sequence[Any] = (), is_list: Sequence[bool] = ()) -> Any:
    """Return a V1 function's result; `returns` are the declared types of its outputs."""
    kind = message["kind"]
    if kind in ("tuple", "list"):
        values = _row(message, returns, is_list)
        return tuple(values) if kind == "tuple" else values
    if kind == "dict":
        rest = dict(message["rest"])
        if message["result"] is not None:
            rest["result"] = rebuilt(message["result"], returns, is_list)
        return rest
    if kind == "blocker":
        return _blocker(message["message"])
    if kind == "output":
        return output(message, returns, is_list)
    return message["value"]


def output(message: dict[str, Any], returns: Sequence[Any] = (), is_list: Sequence[bool] = ()) -> Any:
    """Return a V3 node's NodeOutput."""
    args = _row(message["args"], returns, is_list)
    return core.io().NodeOutput(*args, ui=message["ui"], expand=message["expand"], block_execution=message["block"])


def _row(message: dict[str, Any], returns: Sequence[Any], is_list: Sequence[bool]) -> list[Any]:
    values = list(message["values"])
    for slot, declared in enumerate(returns[: len(values)]):
        if slot < len(is_list) and is_list[slot] and isinstance(values[slot], list):
            values[slot] = [as_declared(declared, one) for one in values[slot]]
        else:
            values[slot] = as_declared(declared, values[slot])
    for place, text in message["blockers"]:
        target = values if len(place) == 1 else values[place[0]]
        target[place[-1]] = _blocker(text)
    return values


def _blocker(text: Any) -> Any:
    return core.module("comfy_execution.graph_utils").ExecutionBlocker(text)
