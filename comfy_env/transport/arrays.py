"""The only host module that imports numpy and PIL, each only when a value needs it."""

from __future__ import annotations

import contextlib
from typing import Any


def load_numpy() -> Any:
    """Return numpy, None where it is not installed."""
    with contextlib.suppress(ImportError):  # the value is refused by name then
        import numpy

        return numpy
    return None


def load_pictures() -> Any:
    """Return PIL.Image, None where it is not installed."""
    with contextlib.suppress(ImportError):  # the value is refused by name then
        import PIL.Image

        return PIL.Image
    return None
