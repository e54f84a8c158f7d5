"""Loads callables that came by value, with the host's own cloudpickle as a private module."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import types
from typing import Any, Optional

from .wire.faults import DecodeFault

_PRIVATE = "_comfy_env_cloudpickle"


class _Loader(pickle.Unpickler):
    """Reads what the host's cloudpickle wrote; the host is trusted with code in its workers."""

    def find_class(self, module: str, name: str) -> Any:
        head, _, rest = module.partition(".")
        return super().find_class(f"{_PRIVATE}.{rest}" if head == "cloudpickle" and rest else module, name)


def load(data: Any, folder: Optional[str]) -> Any:
    """Return the callable; raises DecodeFault when something it needs is not in this environment."""
    if folder is None:
        raise DecodeFault("a function came by value, but the host named no cloudpickle")
    if _PRIVATE not in sys.modules:
        package = types.ModuleType(_PRIVATE)
        package.__path__ = [folder]
        sys.modules[_PRIVATE] = package
        importlib.import_module(f"{_PRIVATE}.cloudpickle")
    try:
        return _Loader(io.BytesIO(data)).load()
    except (ImportError, AttributeError) as error:
        raise DecodeFault(f"a function came by value, but what it uses is not in this environment ({error})") from error
