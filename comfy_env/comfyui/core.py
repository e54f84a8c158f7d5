"""The one door to ComfyUI: every module of it that we touch is had from here.

Nothing is imported that ComfyUI has not loaded itself, except `comfy_api.latest` for V3 nodes, so asking costs nothing and
a host that is no ComfyUI is told as one.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from comfy_env.errors import ComfyEnvError


def loaded(name: str) -> Any:
    """Return a module of ComfyUI if it is loaded, else None."""
    return sys.modules.get(name)


def module(name: str) -> Any:
    """Return a loaded module of ComfyUI; raises ComfyEnvError that says this is not one."""
    found = sys.modules.get(name)
    if found is None:
        raise ComfyEnvError(f"this process has no ComfyUI: its module {name} is not loaded")
    return found


def is_here() -> bool:
    """Tell whether this process is a ComfyUI."""
    return "nodes" in sys.modules and "folder_paths" in sys.modules


def root() -> Path | None:
    """Return the folder of ComfyUI's sources, None without one."""
    found = sys.modules.get("folder_paths")
    return None if found is None or found.__file__ is None else Path(found.__file__).resolve().parent


def version() -> str:
    """Return the core's version, '' where it does not tell."""
    try:
        return str(importlib.import_module("comfyui_version").__version__)
    except (ImportError, AttributeError):
        return ""


def server() -> Any:
    """Return the running PromptServer, None before there is one."""
    cls = getattr(sys.modules.get("server"), "PromptServer", None)
    return getattr(cls, "instance", None)


def io() -> Any:
    """Return the module of V3 types."""
    importlib.import_module("comfy_api.latest")
    return sys.modules["comfy_api.latest._io"]


def executing() -> Any:
    """Return core's context of the node that runs on this thread or task, None outside one."""
    found = sys.modules.get("comfy_execution.utils")
    return None if found is None else found.get_executing_context()


def inference_mode() -> bool:
    """Tell whether torch is in inference mode on this thread."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_inference_mode_enabled())


async def json_of(request: Any) -> dict[str, Any]:
    """Return what a request's body holds, {} for anything but a JSON object: core has its own answer to that."""
    try:
        body = await request.json()
    except ValueError:   # no JSON, or no text
        body = None
    return body if isinstance(body, dict) else {}
