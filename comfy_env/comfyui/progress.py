"""Gives what a worker reports to the doors of core it would have gone through itself: bars, states, messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from comfy_env.comfyui import core
from comfy_env.values import Progress

log = logging.getLogger(__name__)


def deliver(report: Progress) -> None:
    """Pass on one report of a worker. What core raises here, an interrupt above all, stops the node."""
    told = report.preview if isinstance(report.preview, dict) else {}
    deliverer = _WAYS.get(str(told.get("way")))
    if deliverer is not None:
        deliverer(report, told)


def _bar(report: Progress, told: dict[str, Any]) -> None:
    """A `comfy.utils.ProgressBar` moved: core's own hook shows it, whoever has hooked it since."""
    utils = core.loaded("comfy.utils")
    hook = getattr(utils, "PROGRESS_BAR_HOOK", None)
    if hook is not None:
        prompt, node = told["place"]
        if _is_current(prompt):
            hook(report.value, report.total, told.get("preview"), prompt_id=prompt or None, node_id=node or None)


def _state(report: Progress, told: dict[str, Any]) -> None:
    """Something went through `comfy_execution.progress`."""
    module = core.loaded("comfy_execution.progress")
    prompt, node = told["place"]
    if module is not None and node and _is_current(prompt):
        module.get_progress_state().update_progress(node, report.value, report.total, told.get("preview"))


def _is_current(prompt: str) -> bool:
    """Tell whether a prompt is the one that runs: news of an older one is dropped."""
    module = core.loaded("comfy_execution.progress")
    registry = getattr(module, "global_progress_registry", None)
    return registry is None or not prompt or registry.prompt_id == prompt


def _message(report: Progress, told: dict[str, Any]) -> None:
    """A node sent something to the browser."""
    server = core.server()
    kind, *parts = told["parts"]
    send: Callable[..., Any] | None = getattr(server, {"sync": "send_sync", "text": "send_progress_text"}.get(str(kind), ""), None)
    if send is None:
        return
    try:
        if kind == "sync" and parts[2] is None:
            parts[2] = server.client_id
        send(*parts)
    except Exception as error:  # a message that core refuses must not fail the node that sent it
        log.warning("a message of a node could not be sent: %s: %s", type(error).__name__, error)


_WAYS: dict[str, Callable[[Progress, dict[str, Any]], None]] = {"bar": _bar, "state": _state, "message": _message}
