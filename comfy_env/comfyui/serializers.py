"""`register_serializer`, as packs of older releases call it.

There, an object that leaves a worker was written by a function the pack gave. Here it stays where it is and a reference
travels in its place, so nothing has to be written for nodes of one environment. What packs register is kept, and a type
without a codec of ours is refused by name where it would have to be opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)
registered: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {}


def register_serializer(type_: type, ser: Callable[[Any], Any], deser: Callable[[Any], Any], tag: str | None = None) -> None:
    """Take note of how a pack would write a type; objects of it travel as references instead."""
    name = tag or f"{type_.__module__}.{type_.__qualname__}"
    registered[name] = (type_, ser, deser)
    log.debug("%s travels as a reference", name)
