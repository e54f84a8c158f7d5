"""The module `comfy_worker`, through which packs written for isolation ask their host."""

from __future__ import annotations

import types
from typing import Any

from .. import callback


def module() -> types.ModuleType:
    """Return the module to import as `comfy_worker`."""
    made: Any = types.ModuleType("comfy_worker", __doc__)
    made.call_parent = call_parent
    return made


def call_parent(method: str, **kwargs: Any) -> Any:
    """Have the host do something for the node that runs, by name."""
    return callback.call_host(method, **kwargs)
