"""Which node of which prompt the code on this thread or task works for."""

from __future__ import annotations

import contextvars
from typing import NamedTuple, Optional

from .. import callback


class Place(NamedTuple):
    prompt: str
    node: str


_place: contextvars.ContextVar[Optional[Place]] = contextvars.ContextVar("comfy_env place", default=None)


def enter(prompt: str, node: str) -> contextvars.Token:
    return _place.set(Place(prompt, node))


def leave(token: contextvars.Token) -> None:
    _place.reset(token)


def here(node: Optional[str] = None) -> Place:
    """Return the place of the caller: its own, or for a thread a node started that of the call that runs now.

    ``node`` is the node that a pack named itself, None mostly.
    """
    found = _place.get()
    if found is None:
        running = callback.current_node() or {}
        found = Place(str(running.get("prompt_id", "")), str(running.get("node_id", "")))
    return found if node is None else found._replace(node=str(node))
