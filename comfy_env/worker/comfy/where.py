"""Which node of which prompt the code on this thread or task works for."""

from __future__ import annotations

import contextvars
from typing import NamedTuple, Optional

from .. import callback


class Place(NamedTuple):
    prompt: str
    node: str


_place: contextvars.ContextVar[Optional[Place]] = contextvars.ContextVar("comfy_env place", default=None)


class At:
    """Makes a node of a prompt the place of this thread or task while it lasts."""

    __slots__ = ("_here", "_token")

    def __init__(self, prompt: str, node: str) -> None:
        self._here = Place(prompt, node)

    def __enter__(self) -> None:
        self._token = _place.set(self._here)

    def __exit__(self, *error: object) -> None:
        _place.reset(self._token)


def here(node: Optional[str] = None) -> Place:
    """Return the place of the caller: its own, or for a thread a node started that of the call that runs now.

    ``node`` is the node that a pack named itself, None mostly.
    """
    found = _place.get()
    if found is None:
        running = callback.current_node() or {}
        found = Place(str(running.get("prompt_id", "")), str(running.get("node_id", "")))
    return found if node is None else found._replace(node=str(node))
