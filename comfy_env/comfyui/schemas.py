"""Rebuilds a V3 schema from what a worker wrote of it, out of this ComfyUI's own classes.

The writing half is `comfy_env/worker/comfy/schemas.py`. A worker's core is the host's own; a snapshot may come
from an older one, and what that did not know keeps this core's default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from comfy_env.comfyui import core, paths
from comfy_env.packs.plain import decode


def schema(written: dict[str, Any]) -> Any:
    """Return a fresh Schema; core finalises it itself."""
    cls = core.io().Schema
    known = cls.__dataclass_fields__
    return cls(**{name: _part(value) for name, value in written.items() if name in known})


def _part(value: Any) -> Any:
    if isinstance(value, dict):
        for mark, read in _READERS.items():
            if mark in value:
                return read(value)
    return decode(value, paths.file_names)


def _object(value: dict[str, Any]) -> Any:
    cls = core.io()
    for name in value["$object"].split("."):
        cls = getattr(cls, name)
    return _filled(cls, value["state"])


def _typed(value: dict[str, Any]) -> Any:
    return _filled(getattr(_type(value), value["$io"]), value["state"])


def _filled(cls: Any, state: dict[str, Any]) -> Any:
    content = {name: _part(part) for name, part in state.items()}
    made = _blank(cls, content)
    vars(made).update(content)
    return made


def _blank(cls: Any, content: dict[str, Any]) -> Any:
    """Return an object with this core's defaults for what the writer's core did not have."""
    parameters = inspect.signature(cls).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    try:
        return cls(**{name: content[name] for name in needed})
    except Exception:  # a constructor that wants more than its object shows: the content is all there is
        return object.__new__(cls)


def _type(value: dict[str, Any]) -> Any:
    io = core.io()
    return getattr(io, value["$type"]) if value["$type"] else io.Custom(value["custom"])


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$list": lambda value: [_part(item) for item in value["$list"]],
    "$member": lambda value: getattr(core.io(), value["$member"][0])[value["$member"][1]],
    "$object": _object,
    "$io": _typed,
    "$type": _type,
}
