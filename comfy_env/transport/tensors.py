"""The only host module that imports torch, and only when a tensor arrives."""

from __future__ import annotations

import contextlib
from typing import Any


def load_torch() -> Any:
    """Return torch, None where it is not installed."""
    with contextlib.suppress(ImportError):  # the tensor becomes a numpy array, or is refused by name
        import torch

        return torch
    return None
