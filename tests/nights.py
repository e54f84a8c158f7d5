"""A machine that sleeps for a night while something waits: the clock of those who wait jumps, and nothing else happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

EIGHT_HOURS = 8 * 3600


class Night:
    """The machine's clock as those have it who wait; `pass_by` lets it jump by eight hours."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + self.slept

    def pass_by(self) -> None:
        self.slept += EIGHT_HOURS

    def in_first(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wait that a night falls into when it is called first: it ends late, and in vain."""
        nights = iter((self.pass_by,))

        def waits(*args: Any, **kwargs: Any) -> Any:
            for night in nights:
                night()
                return False
            return wait(*args, **kwargs)

        return waits


def night_in(monkeypatch: Any, *modules: str) -> Night:
    """Give these modules of the package, and whoever counts slices, a clock that a night can pass by on."""
    made = Night()
    for name in ("process.patience", *modules):
        monkeypatch.setattr(f"comfy_env.{name}.time", made, raising=False)
    return made
