"""The instances behind the host's proxies, and what of their state can travel to the next worker."""

from __future__ import annotations

import pickle
from typing import Any, Optional

from .. import callback

MOST = 256 * 1024
_PLAIN = (type(None), bool, int, float, str, bytes)


class Twin:
    """One instance. ``fresh`` until its first answer: it was made in this worker."""

    def __init__(self, instance: Any) -> None:
        self.instance = instance
        self.fresh = True
        self._told: Optional[bytes] = None

    def news(self) -> dict[str, Any]:
        """Return what the host must know of the state since the last call; nothing if it did not change."""
        state = vars(self.instance) if hasattr(self.instance, "__dict__") else {}
        news: dict[str, Any] = {"fresh": True} if self.fresh else {}
        self.fresh = False
        if not state and self._told is None:
            return news
        why = _cannot_travel(state)
        written = why.encode() if why else pickle.dumps(state)
        if not why and len(written) > MOST:
            why, written = f"it is larger than {MOST} bytes", b"large"
        if written != self._told:
            self._told = written
            news.update({"stays": why} if why else {"state": dict(state)})
        return news


def twin(pack: Any, cls: Any, key: str, has_state: bool) -> Twin:
    """Return the twin of a proxy, made at its first call, with the state the host kept if there is some."""
    found = pack.twins.get(key)
    if found is None:
        found = pack.twins[key] = Twin(cls())
        if has_state:
            vars(found.instance).update(callback.call_host("comfy_env.instance"))
    return found


def _cannot_travel(value: Any, depth: int = 0, at: str = "") -> str:
    """Return why a state cannot travel, '' if it can: only plain values do."""
    if type(value) in _PLAIN:
        return ""
    if depth > 20:
        return "it is nested too deeply"
    if type(value) is dict:
        pairs = [(f"{at}.{key}" if at else str(key), part) for key, part in value.items()]
    elif type(value) in (list, tuple, set, frozenset):
        pairs = [(f"{at}[{index}]", part) for index, part in enumerate(value)]
    else:
        return f"{at or 'it'} is of type {type(value).__module__}.{type(value).__qualname__}"
    return next((why for place, part in pairs if (why := _cannot_travel(part, depth + 1, place))), "")
