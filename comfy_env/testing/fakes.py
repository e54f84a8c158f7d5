"""Stand-ins for what the core calls outward: they keep what they were told and answer what a test decides.

The backend without a process is `comfy_env.testing.scripted.ScriptedBackend`.
"""

from __future__ import annotations

from typing import Any


class FakeShelf:
    """Satisfies `ports.StandInShelf`. ``told`` holds ("quarantine", env, generation) and ("drop", env)."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def quarantine(self, env: str, generation: int) -> None:
        self.told.append(("quarantine", env, generation))

    def drop_quarantine(self, env: str) -> None:
        self.told.append(("drop", env))


class FakePrompt:
    """Satisfies `ports.Prompt`; set ``id`` to start and end a prompt."""

    def __init__(self, id: str = "") -> None:
        self.id = id

    def running(self) -> str:
        return self.id


class FakeMemory:
    """Satisfies `ports.Memory`; the devices in ``short`` are short of memory."""

    def __init__(self, *short: str | None) -> None:
        self.short: set[str | None] = set(short)

    def tight(self, device: str | None) -> bool:
        return device in self.short


class FakeEvents:
    """Satisfies `ports.Events` and hears like an observer; ``told`` holds (name, facts)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def tell(self, name: str, facts: dict[str, Any]) -> None:
        self.told.append((name, facts))
