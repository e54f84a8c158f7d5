"""Which two Pythons the packs get: chosen when the demo runs, of those that the packs allow and that really ran on this machine.

What the packs declare stays as it is, so `comfy-env status examples` calls ready what the demo built.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from comfy_env import EnvPlan
from comfy_env.envs import interpreters

EXAMPLES = Path(__file__).resolve().parent.parent
CLASSIC_MINORS = range(9, 13)
MODERN_MINORS = range(10, 15)
"""The minor versions of Python 3 that the packs' libraries publish wheels for."""


@dataclass(frozen=True)
class Worlds:
    """The plans of the two packs, and how they were chosen."""

    classic: EnvPlan
    modern: EnvPlan
    found: tuple[int, ...]
    note: str

    @property
    def plans(self) -> tuple[EnvPlan, EnvPlan]:
        return self.classic, self.modern


def answering(minors: Iterable[int] = range(CLASSIC_MINORS[0], MODERN_MINORS[-1] + 1)) -> tuple[int, ...]:
    """Return the minor versions of Python 3 of which an interpreter ran on this machine."""
    return tuple(minor for minor in minors if interpreters.find(EnvPlan(key="probe", python=f"3.{minor}"))[0] is not None)


def choose(found: Iterable[int]) -> tuple[int | None, int | None]:
    """Return the minor versions for the classic and the modern pack: two different ones if there are two.

    None for the classic pack: nothing its numpy runs on answered. None for the modern one: any Python it allows.
    """
    old = [minor for minor in found if minor in CLASSIC_MINORS]
    new = [minor for minor in found if minor in MODERN_MINORS]
    classic = min(old, default=None)
    others = [minor for minor in new if minor != classic] or new
    return classic, max(others, default=None)


def worlds(found: Iterable[int] | None = None) -> Worlds:
    """Return the two packs' plans for the interpreters found on this machine."""
    found = answering() if found is None else tuple(found)
    first, second = choose(found)
    (classic,) = EnvPlan.from_pack(EXAMPLES / "pack_classic")
    (modern,) = EnvPlan.from_pack(EXAMPLES / "pack_modern")
    modern = replace(modern, python=f"3.{second}") if second is not None else modern
    if first is not None:
        return Worlds(replace(classic, python=f"3.{first}"), modern, found, "numpy 1.26 and numpy 2 cannot share one Python")
    note = "no Python below 3.13 answered, so the packs disagree on Pillow instead of numpy: 11 and 12"
    oldest = _oldest(found)
    return Worlds(classic if oldest is None else replace(classic, python=oldest), modern, found, note)


def _oldest(found: tuple[int, ...]) -> str | None:
    usable = [minor for minor in found if minor in MODERN_MINORS]
    return f"3.{min(usable)}" if usable else None
