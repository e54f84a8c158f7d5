"""Stands between core's cache and an author's IS_CHANGED or fingerprint_inputs, which only a worker can run.

Core is handed a token per class and constant inputs that changes when the author's value does. No worker is started to
ask: an unknown value gets a new token, which is bound to the value that the worker computes with the call itself.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

MOST = 4096
ALWAYS = None
"""The mark of a fingerprint that never equals itself: the author returned NaN, or raised."""


@dataclass
class _Entry:
    token: str
    mark: str | None = ""
    known: bool = False


class Fingerprints:
    """The tokens of one environment's classes."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def told(self, node: str, kwargs: dict[str, Any], mark: str | None) -> Any:
        """Return what core gets for a value that a worker just told."""
        with self._lock:
            return self._bind(self._entry(node, kwargs), mark)

    def remembered(self, node: str, kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """Return what core gets where no worker answers, and whether it is known what the value was."""
        with self._lock:
            entry = self._entry(node, kwargs)
            return (float("nan") if entry.known and entry.mark is ALWAYS else entry.token), entry.known

    def bind(self, node: str, kwargs: dict[str, Any], mark: str | None) -> None:
        """Tie the token given out before to the value that the call computed."""
        with self._lock:
            entry = self._entry(node, kwargs)
            entry.mark, entry.known = mark, True

    def _bind(self, entry: _Entry, mark: str | None) -> Any:
        if entry.known and entry.mark != mark:
            entry.token = secrets.token_hex(8)
        entry.mark, entry.known = mark, True
        return float("nan") if mark is ALWAYS else entry.token   # a fresh NaN: one object equals itself for ever

    def _entry(self, node: str, kwargs: dict[str, Any]) -> _Entry:
        key = f"{node}\0{json.dumps(kwargs, sort_keys=True, default=repr)}"
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(secrets.token_hex(8))
            if len(self._entries) > MOST:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return entry
