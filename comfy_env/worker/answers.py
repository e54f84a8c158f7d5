"""Writes what a worker says to its host; what cannot be written is refused, and ends nobody."""

from __future__ import annotations

from typing import Any

from .raised import text_of
from .wire.faults import EncodeFault, WireFault
from .wire.payload import Codec


def encoded(codec: Codec, message: dict[str, Any]) -> tuple[bytes, list[memoryview]]:
    """Return a message as it travels; raises EncodeFault whatever a value in it raises when it is looked at."""
    try:
        return codec.encode(message, message=True)
    except WireFault:
        raise
    except Exception as error:  # a value's class, or a library's view of it, can raise anything
        raise EncodeFault(None, f"the answer holds what cannot be written ({type(error).__name__}: {text_of(error)})") from error
