"""What the core calls outward. A host without the other side uses the `Null` objects."""

from __future__ import annotations

import time
from typing import Any, Protocol


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now(self) -> float: ...


class StandInShelf(Protocol):
    """Where ComfyUI's model list keeps the stand-ins of an environment's worker."""

    def quarantine(self, env: str, generation: int) -> None: ...
    def drop_quarantine(self, env: str) -> None: ...


class Prompt(Protocol):
    """Which prompt is running ('' for none)."""

    def running(self) -> str: ...


class Memory(Protocol):
    """Whether a device is short of memory."""

    def tight(self, device: str | None) -> bool: ...


class Events(Protocol):
    """Hears what happens to environments; must not raise or block."""

    def tell(self, name: str, facts: dict[str, Any]) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()


class NullShelf:
    def quarantine(self, env: str, generation: int) -> None:
        """There are no stand-ins."""

    def drop_quarantine(self, env: str) -> None:
        """There are no stand-ins."""


class NullPrompt:
    def running(self) -> str:
        return ""


class NullMemory:
    def tight(self, device: str | None) -> bool:
        return False


class NullEvents:
    def tell(self, name: str, facts: dict[str, Any]) -> None:
        """Nobody listens."""
