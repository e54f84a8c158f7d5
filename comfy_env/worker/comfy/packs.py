"""Node packs as ComfyUI's proxies use them: classes of both kinds, and a twin for every instance the host has."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
from typing import Any, Optional

from .. import known
from ..node_packs import import_folder
from . import pack_api, questions
from .mirror import in_host

log = logging.getLogger("comfy_env.worker")


class Pack:
    """An imported pack: its classes, and the twins of the host's instances by their key."""

    def __init__(self, name: str, module: Any, classes: dict[str, Any], names: dict[str, str]) -> None:
        self.name = name
        self.module = module
        self.classes = classes
        self.names = names
        self.twins: dict[str, Any] = {}

    def node_class(self, name: str) -> Any:
        """Return the class a workflow calls `name`."""
        try:
            return self.classes[name]
        except KeyError:
            raise LookupError(f"the pack in this environment has no node class {name!r}; restart ComfyUI to see what it has") from None


class Packs:
    """Every pack this worker imported, by the host's name for its module."""

    def __init__(self) -> None:
        self._packs: dict[str, Pack] = {}
        self._lock = threading.RLock()

    def load(self, where: dict[str, Any]) -> Pack:
        """Return a pack, importing it at the first ask. ``where`` holds its folder, module name and packages of classes."""
        name = where["module"]
        found = self._packs.get(name)
        if found is None:
            with self._lock:
                found = self._packs.get(name) or self._import(name, where)
        return found

    def _import(self, name: str, where: dict[str, Any]) -> Pack:
        own_name = f"{name}:isolated" if in_host() else name   # the host's own module of that name is not ours to replace
        if where.get("codecs"):
            _load_codecs(where["codecs"], own_name)
        presets = {pack_api.PACKAGES: tuple(where.get("packages") or ())}
        module = import_folder(where["folder"], own_name, **presets)
        pack = self._packs[name] = Pack(name, module, *pack_api.mappings(module))
        known.packs.register(name, questions.Answers(pack).ask)
        return pack

    def find(self, name: str) -> Optional[Pack]:
        return self._packs.get(name)


def _load_codecs(file: str, module: str) -> None:
    """Run an older pack's `serialization.py` under the name its pack would import it by; it registers what it has."""
    name = f"{module}.{os.path.splitext(os.path.basename(file))[0]}"
    spec: Any = importlib.util.spec_from_file_location(name, file)
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except Exception as error:  # a pack's own code
        del sys.modules[name]
        log.warning("%s cannot be loaded (%s: %s): objects of its types stay in this worker", file, type(error).__name__, error)


def folder_of(pack: Pack) -> str:
    return os.path.dirname(pack.module.__file__)


packs = Packs()
