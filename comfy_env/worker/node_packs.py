"""Imports node packs from their folders and keeps what belongs to one: its classes and its V1 instances.

A pack is imported exactly once per process, by file location, under the module name ComfyUI gives it (its path with
the dots replaced), so that relative imports work whatever characters the path has and classes keep one name everywhere.
"""

import asyncio
import importlib.util
import inspect
import os
import sys
import threading

from . import comfy
from .comfy import pack_api


class Pack:
    """An imported pack: its module, its node classes and one instance per key."""

    def __init__(self, folder, module):
        self.folder = folder
        self.module = module
        self.classes = dict(module.NODE_CLASS_MAPPINGS)
        self.display_names = dict(getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", None) or {})
        self._instances = {}

    def node_class(self, name):
        """Return the class a workflow calls `name`."""
        try:
            return self.classes[name]
        except KeyError:
            known = ", ".join(sorted(self.classes)) or "none"
            raise LookupError(f"pack {self.folder} has no node class {name!r}; it has: {known}") from None

    def instance(self, name, key):
        """Return the instance of class `name` that belongs to `key`, made at its first use."""
        if (name, key) not in self._instances:
            self._instances[name, key] = self.node_class(name)()
        return self._instances[name, key]

    def forget(self, prefix):
        """Drop the instances whose key starts with `prefix`; return how many there were."""
        gone = [place for place in self._instances if place[1].startswith(prefix)]
        for place in gone:
            del self._instances[place]
        return len(gone)


class Packs:
    """Every pack this process imported, by its real folder."""

    def __init__(self):
        self._packs = {}
        self._lock = threading.RLock()

    def load(self, folder):
        """Return the pack in `folder`, importing it at the first ask; raises ImportError that names the folder."""
        place = os.path.realpath(folder)
        with self._lock:
            if place not in self._packs:
                comfy.install()
                pack_api.offer(sys.modules[__package__.partition(".")[0]])
                module = import_folder(folder, **{pack_api.PACKAGES: ()})   # by which its register_nodes() knows where it runs
                self._packs[place] = Pack(folder, checked(module, folder))
            return self._packs[place]


def module_name(folder):
    """Return the name ComfyUI gives the module of a pack in a folder."""
    return os.path.abspath(folder).replace(".", "_x_")


def import_folder(folder, name=None, **presets):
    """Import the package in `folder` by its location and return the module; `presets` are globals it finds when it runs."""
    start = os.path.join(folder, "__init__.py")
    if not os.path.isfile(start):
        raise ImportError(f"{folder} is not a node pack: it has no __init__.py")
    name = name or module_name(folder)
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    vars(module).update(presets)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        _unload(name)
        if isinstance(error, Exception):
            raise ImportError(f"node pack {folder} cannot be imported: {type(error).__name__}: {error}") from error
        raise
    return module


def _unload(name):
    for loaded in [n for n in sys.modules if n == name or n.startswith(name + ".")]:
        del sys.modules[loaded]


def checked(module, folder):
    """Return `module` if it declares V1 nodes; raises ImportError that says what it declares instead."""
    if isinstance(getattr(module, "NODE_CLASS_MAPPINGS", None), dict):
        return module
    if hasattr(module, "comfy_entrypoint"):
        raise ImportError(f"node pack {folder} declares V3 nodes (comfy_entrypoint); only NODE_CLASS_MAPPINGS can be run here")
    raise ImportError(f"node pack {folder} has no NODE_CLASS_MAPPINGS in its __init__.py")


def finished(value):
    """Return `value`, awaited first if a coroutine function made it."""
    if type(value) in (tuple, dict):   # as almost every node returns
        return value
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value):
    return await value
