"""Callables by value: the only host module that imports cloudpickle."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def folder() -> str | None:
    """Return the folder of this host's cloudpickle without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("cloudpickle")
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def dumps(function: Any) -> bytes:
    """Return a callable by value."""
    import cloudpickle

    return cloudpickle.dumps(function, protocol=5)
