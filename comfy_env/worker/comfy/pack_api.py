"""What a pack may import from `comfy_env` inside a worker: the same names as in the host, with nothing left to do.

A pack's `__init__.py` runs on both sides. In the host `register_nodes` gives stand-ins for the classes; here it gives the
classes themselves.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import types
from typing import Any, Optional

from ..wire.coded import codecs

PACKAGES = "__comfy_env_packages__"
"""The global of a pack's module that says where its classes are, if more than its own word counts."""


OLDER = ("comfy_env.isolation", "comfy_env.isolation.workers", "comfy_env.isolation.workers._ipc_shared", "_ipc_shared")


def register_nodes(nodes_package: str = "nodes", **more: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the classes and display names of the calling pack's own modules."""
    scope = sys._getframe(1).f_globals
    classes: dict[str, Any] = {}
    names: dict[str, str] = {}
    for package in scope.get(PACKAGES) or (nodes_package,):
        module = importlib.import_module(f".{package}", scope["__name__"])
        found = mappings(module)
        classes.update(found[0])
        names.update(found[1])
    return classes, names


def mappings(module: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what a module declares: its V1 mappings, else the nodes of its V3 entry point."""
    classes = getattr(module, "NODE_CLASS_MAPPINGS", None)
    if isinstance(classes, dict):
        return dict(classes), dict(getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", None) or {})
    entry = getattr(module, "comfy_entrypoint", None)
    if callable(entry):
        return extension_nodes(entry)
    raise ImportError(f"{module.__name__} declares no nodes: it has neither NODE_CLASS_MAPPINGS nor comfy_entrypoint")


def extension_nodes(entry: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the classes of a V3 extension by node id, and their display names."""
    async def listed() -> Any:
        made = entry()
        extension = await made if inspect.isawaitable(made) else made
        return await extension.get_node_list()

    classes, names = {}, {}
    for node_class in asyncio.run(listed()):
        schema = node_class.GET_SCHEMA()
        classes[schema.node_id] = node_class
        if schema.display_name is not None:
            names[schema.node_id] = schema.display_name
    return classes, names


def setup_env(*args: Any, **kwargs: Any) -> None:
    """Nothing is to be set up inside an environment."""


def install(*args: Any, **kwargs: Any) -> bool:
    """Nothing is to be installed from inside an environment."""
    return True


def copy_files(*args: Any, **kwargs: Any) -> int:
    """The host copies a pack's files."""
    return 0


def register_serializer(type_: Any, ser: Any, deser: Any = None, tag: Optional[str] = None) -> None:
    """Have objects of a class, or of any class of a name, cross as what `ser` makes of them, for `deser` to read."""
    codecs.register(type_, ser, deser, tag)


def offer(package: Any) -> None:
    """Put these names into the empty parent package of the worker; a real comfy_env is left alone."""
    if hasattr(package, "__version__"):
        return
    for function in (register_nodes, setup_env, install, copy_files, register_serializer):
        setattr(package, function.__name__, function)
    for name in OLDER:
        module: Any = types.ModuleType(name, "A name under which packs of older releases import.")
        module.register_serializer = register_serializer
        module.__path__ = []
        sys.modules.setdefault(name, module)
