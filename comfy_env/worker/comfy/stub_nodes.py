"""The module `nodes` in a worker: what packs read from ComfyUI's own without wanting its nodes."""

from __future__ import annotations

import types
from typing import Any

from .. import callback

MAX_RESOLUTION = 16384


def module() -> types.ModuleType:
    """Return the module to import as `nodes`."""
    made: Any = types.ModuleType("nodes", __doc__)
    made.MAX_RESOLUTION = MAX_RESOLUTION
    made.NODE_CLASS_MAPPINGS = {}
    made.NODE_DISPLAY_NAME_MAPPINGS = {}
    made.EXTENSION_WEB_DIRS = {}
    made.interrupt_processing = lambda value=True: value and callback.call_host("comfy_env.interrupt")
    made.before_node_execution = _before_node_execution
    made.__getattr__ = _missing
    return made


def _before_node_execution() -> None:
    if callback.interrupted():
        raise callback.CallInterrupted("the host asked for the interrupt")


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"nodes.{name} is not available in an isolated worker: ComfyUI's own nodes run in ComfyUI")
