"""Packs that answer on the side lane: whoever loads one says here how its classes are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

Ask = Callable[[str, str, dict], dict]
"""Takes (question, class name, arguments) and returns the reply's message; questions are "inputs", "fingerprint" and "validate"."""


class Known:
    """The loaded packs of this process by the name of their module; any thread may look one up."""

    def __init__(self) -> None:
        self._asks: dict[str, Ask] = {}

    def register(self, pack: str, ask: Ask) -> None:
        self._asks[pack] = ask

    def find(self, pack: Any) -> Optional[Ask]:
        return self._asks.get(pack)


packs = Known()
