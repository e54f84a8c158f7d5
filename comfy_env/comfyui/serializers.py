"""`register_serializer`: how objects of a pack's own classes leave the process that made them.

An object without a codec stays in its worker and a reference travels in its place. With one, what the codec wrote travels,
and is read where a codec of the same class and tag is known. ComfyUI itself often knows none: it passes on what it got.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
Entry = tuple[type | str, Callable[..., Any], Callable[..., Any] | None, str | None]
waiting: list[Entry] = []
"""What was registered before there was a pool."""


def register_serializer(
    type_: type | str, ser: Callable[..., Any], deser: Callable[..., Any] | None = None, tag: str | None = None
) -> None:
    """Have objects of a class, or of any class of a name, leave a worker by value.

    `ser` makes plain values, arrays and tensors of an object and `deser` makes an object of those again; `tag` is the name
    they are known by, the class's own if none is given. To be called on both sides: a pack's module of nodes is one, its
    `__init__.py`, which runs in ComfyUI too, is both.
    """
    waiting.append((type_, ser, deser, tag))
    serving = sys.modules.get("comfy_env.comfyui.serving")
    if serving is not None:
        serving.teach()


def load(file: Path, module: str) -> None:
    """Run an older pack's `serialization.py`, under the name its pack would import it by; if that fails here, say so."""
    name = f"{module}.{file.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        return
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except Exception as error:  # a pack's own code, and it may need what only its environment has
        del sys.modules[name]
        log.warning("%s cannot be loaded in ComfyUI: %s: %s; values of its types are passed on unopened", file, type(error).__name__, error)
