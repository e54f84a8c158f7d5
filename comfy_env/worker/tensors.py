"""The only place of a worker that imports torch, numpy or PIL; each only when a value needs it."""

from __future__ import annotations

import contextlib
from typing import Any


def load(module: str) -> Any:
    """Return the module "numpy", "torch" or "PIL.Image", None where the environment lacks it."""
    with contextlib.suppress(ImportError):   # then the value is refused by name, or takes another form
        return _LOADERS[module]()
    return None


def _numpy() -> Any:
    import numpy

    return numpy


def _torch() -> Any:
    import torch

    return torch


def _pictures() -> Any:
    import PIL.Image

    return PIL.Image


_LOADERS = {"numpy": _numpy, "torch": _torch, "PIL.Image": _pictures}
