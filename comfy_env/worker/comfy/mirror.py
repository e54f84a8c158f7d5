"""Makes a worker look like its ComfyUI: the same sources, folders and flags, and stubs where only the host can be.

The state comes from the host, by a callback, whenever its version is not the one known here. In a ComfyUI that runs a pack
on a thread of its own there is nothing to mirror.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from typing import Any, Optional

from .. import callback
from . import hooks, model_management, pack_api, stub_nodes, stub_server, stub_worker, utils
from .after_import import AfterImport

log = logging.getLogger("comfy_env.worker")


class Mirror:
    """What this worker knows of its host. ``mismatches`` lists flags that could not be taken over."""

    def __init__(self) -> None:
        self.version: Optional[str] = None
        self.mismatches: list[str] = []
        self._prepared = False

    def ensure(self, version: Optional[str]) -> None:
        """Take over the host's state unless this version of it is known."""
        if version == self.version or in_host():
            return
        state = callback.call_host("comfy_env.state")
        if not self._prepared:
            self._prepared = True
            _prepare(state)
            self.mismatches = _set_flags(state.get("flags") or {}) if state.get("root") else []
        if state.get("folders"):
            _set_folders(state["folders"])
        self.version = version


def in_host() -> bool:
    """Tell whether this is the host's own process: its modules are the real ones."""
    return hasattr(sys.modules.get("comfy_env"), "__version__")


def _prepare(state: dict[str, Any]) -> None:
    """Do once what must be done before a pack is imported."""
    pack_api.offer(sys.modules["comfy_env"])
    if state.get("pycache"):
        sys.pycache_prefix = state["pycache"]
    root = state.get("root")
    if root and root not in sys.path:
        sys.path.insert(0, root)
    stubs = {"nodes": stub_nodes.module(), "server": stub_server.module(), "comfy_worker": stub_worker.module()}
    for name, module in stubs.items():
        sys.modules.setdefault(name, module)
    stubs["nodes"].MAX_RESOLUTION = state.get("max_resolution", stub_nodes.MAX_RESOLUTION)   # type: ignore[attr-defined]
    stands_in = _stand_in_for_torch(root) if not root or importlib.util.find_spec("torch") is None else frozenset()
    AfterImport({name: change for name, change in hooks.CHANGES.items() if name not in stands_in}).install()


def _stand_in_for_torch(root: Optional[str]) -> frozenset[str]:
    """Give the modules that need torch their small twins, and return their names; ComfyUI's other sources stay importable."""
    package = importlib.import_module("comfy") if root else _empty_package()
    twins = {"utils": utils, "model_management": model_management}
    for name, module in twins.items():
        setattr(package, name, module)
        sys.modules["comfy." + name] = module
    utils.report_progress = hooks.report_bar   # type: ignore[assignment]
    return frozenset("comfy." + name for name in twins)


def _empty_package() -> Any:
    package = type(sys)("comfy")
    package.__path__ = []   # type: ignore[attr-defined]
    return sys.modules.setdefault("comfy", package)


# ---------------------------------------------------------------- flags

def _set_flags(flags: dict[str, Any]) -> list[str]:
    """Give `comfy.cli_args.args` the host's values and return what could not be given."""
    module = importlib.import_module("comfy.cli_args")
    wrong = []
    for name, value in flags.items():
        try:
            wanted = _flag(module, value)
        except (AttributeError, KeyError, TypeError) as error:
            wrong.append(f"{name}: {error}")
            continue
        setattr(module.args, name, wanted)
        if getattr(module.args, name) != wanted:
            wrong.append(f"{name}: it reads {getattr(module.args, name)!r} after {wanted!r} was set")
    for line in wrong:
        log.warning("a flag of ComfyUI was not taken over: %s", line)
    return wrong


def _flag(module: Any, value: Any) -> Any:
    """Return a flag's value; enum members travel as {"enum": class, "name": member}, sets as {"set": [...]}."""
    if not isinstance(value, dict):
        return value
    if "set" in value:
        return {_flag(module, one) for one in value["set"]}
    return getattr(module, value["enum"])[value["name"]]


# ---------------------------------------------------------------- folders

def _set_folders(folders: dict[str, Any]) -> None:
    """Make `folder_paths` answer like the host's."""
    module = importlib.import_module("folder_paths")
    table = {name: (list(paths), set(kinds) if is_set else list(kinds)) for name, (paths, kinds, is_set) in folders["names"].items()}
    module.folder_names_and_paths.clear()
    module.folder_names_and_paths.update(table)
    for name, value in folders["places"].items():
        setattr(module, name, value)
    module.filename_list_cache.clear()


mirror = Mirror()
