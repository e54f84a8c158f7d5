"""Codecs of packs, as the rest of the host sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comfy_env.worker.wire.coded import SealedValue, codecs

__all__ = ["SealedValue", "register"]


def register(kind: type | str, write: Callable[..., Any], read: Callable[..., Any] | None = None, tag: str | None = None) -> None:
    """Have objects of a class cross by value in every pool of this process; see `comfy_env.register_serializer`."""
    codecs.register(kind, write, read, tag)
