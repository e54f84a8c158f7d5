"""What we require of a ComfyUI, as data: each symbol we touch, what is lost without it, and since when it is known.

Checked once, when the first isolated pack registers, on the modules that are loaded. A missing symbol switches one thing
off and is named in one line; without one of the few that carry everything, packs are refused.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfy_env.comfyui import core

log = logging.getLogger(__name__)

REFUSE = "refuse"
OFF = "off"


@dataclass(frozen=True)
class Symbol:
    """A name in a module of ComfyUI. ``seen`` lists the versions it was looked up in."""

    module: str
    path: str
    kind: str
    severity: str
    reason: str
    seen: str = "0.3.64, 0.8.0, 0.38.1"


SYMBOLS = (
    Symbol("nodes", "NODE_CLASS_MAPPINGS", "data", REFUSE, "isolated nodes cannot be registered"),
    Symbol("folder_paths", "folder_names_and_paths", "data", REFUSE, "workers cannot know the folders of models"),
    Symbol("folder_paths", "get_filename_list", "call", OFF, "menus of files show what they held when the pack was described"),
    Symbol("execution", "PromptExecutor", "call", REFUSE, "this is not a ComfyUI that executes nodes as we know it"),
    Symbol("comfy_execution.utils", "get_executing_context", "call", REFUSE, "a node cannot be told which one it is",
           "0.3.64, 0.8.0; 0.38.1 imports CurrentNodeContext from there"),
    Symbol("comfy_execution.graph_utils", "ExecutionBlocker", "call", OFF, "a node that blocks what follows fails instead",
           "0.3.64, 0.8.0; 0.38.1 has it through comfy_execution.graph"),
    Symbol("comfy_execution.progress", "get_progress_state", "call", OFF, "progress of V3 nodes is not shown"),
    Symbol("comfy.utils", "PROGRESS_BAR_HOOK", "data", OFF, "progress bars of isolated nodes are not shown"),
    Symbol("comfy.model_management", "processing_interrupted", "call", OFF, "a node that computes can only be interrupted when it ended"),
    Symbol("comfy.model_management", "interrupt_current_processing", "call", OFF, "an interrupt is taken for the next prompt, too"),
    Symbol("comfy.model_management", "InterruptProcessingException", "call", REFUSE, "an interrupt would be shown as an error",
           "0.3.64, 0.8.0; in 0.38.1 a BaseException"),
    Symbol("comfy.model_management", "current_loaded_models", "data", OFF, "core does not see the models of workers"),
    Symbol("comfy.model_management", "LoadedModel", "call", OFF, "core does not see the models of workers"),
    Symbol("comfy.model_management", "cleanup_models", "call", OFF, "core does not see the models of workers"),
    Symbol("comfy.model_management", "free_memory", "call", OFF, "no room is made for the models of workers"),
    Symbol("comfy.model_management", "get_free_memory", "call", OFF, "a full card is not noticed between prompts"),
    Symbol("comfy.cli_args", "args", "data", OFF, "workers run with ComfyUI's default flags"),
    Symbol("server", "PromptServer.instance.send_sync", "call", OFF, "messages of isolated nodes to the browser are dropped"),
    Symbol("server", "PromptServer.instance.prompt_queue", "data", OFF, "values that died with a worker are not made anew by themselves"),
    Symbol("server", "PromptServer.instance.app.middlewares", "data", OFF, "impossible links are found out when they run"),
    Symbol("server", "PromptServer.instance.routes", "data", OFF, "there is no status page"),
    Symbol("server", "web", "data", OFF, "there is no status page"),
)

STAND_IN_MEMBERS: dict[str, frozenset[str]] = {
    "0.3.64": frozenset({
        "load_device", "offload_device", "parent", "model", "model_size", "loaded_size", "model_dtype", "current_loaded_device",
        "model_patches_models", "model_patches_to", "is_clone", "partially_load", "partially_unload", "detach", "lowvram_patch_counter",
    }),
    "0.38.1": frozenset({
        "is_dynamic", "clone_base_uuid", "get_nested_additional_models", "loaded_ram_size", "partially_unload_ram",
        "unregister_inactive_pins",
    }),
}
"""What core's list of loaded models asks of its entries' models, by the version that first asked; 0.8.0 asks what 0.3.64 does."""


def check() -> dict[str, str]:
    """Return the missing symbols with what is lost without each, after naming each in one line of the log."""
    missing = {f"{one.module}.{one.path}": one for one in SYMBOLS if not _is_there(one)}
    for name, one in missing.items():
        log.warning("ComfyUI %s has no %s: %s", core.version() or "of unknown version", name, one.reason)
    return {name: one.severity for name, one in missing.items()}


def _is_there(symbol: Symbol) -> bool:
    found: Any = core.loaded(symbol.module)
    for name in symbol.path.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return symbol.kind != "call" or callable(found)


def asked_of_entries(source: Path) -> frozenset[str]:
    """Return which members a `model_management.py` touches of the models in its list, from its syntax tree."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return frozenset(name for node in ast.walk(tree) if (name := _asked(node)) and not name.startswith("__"))


def _asked(node: ast.AST) -> str:
    """Return NAME of an expression `….model.NAME`, where `….model` is what an entry of the list holds."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "model":
        return node.attr
    return ""


def members() -> Iterator[str]:
    """Yield every member that some known core asks of a stand-in."""
    for names in STAND_IN_MEMBERS.values():
        yield from names
