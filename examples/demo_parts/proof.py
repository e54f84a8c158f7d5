"""Evidence that both libraries run at the same time, each out of its own environment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfy_env import EnvPlan

MODULES = ("numpy", "PIL")


@dataclass(frozen=True)
class Evidence:
    """What one worker says of itself; `own` is whether every module lies inside its environment."""

    key: str
    pid: int | None
    python: str
    modules: dict[str, list[str]]
    prefix: str

    @property
    def own(self) -> bool:
        return all(Path(file).resolve().is_relative_to(Path(self.prefix).resolve()) for _, file in self.modules.values())


def gather(pool: Any, plans: tuple[EnvPlan, ...]) -> tuple[Evidence, ...]:
    """Ask all workers at the same time."""
    with ThreadPoolExecutor(len(plans)) as threads:
        return tuple(threads.map(lambda plan: _ask(pool, plan), plans))


def _ask(pool: Any, plan: EnvPlan) -> Evidence:
    told = pool.call(plan, "comfy_env.worker.nodes:about", MODULES)
    record = pool.record(plan)
    return Evidence(plan.key, record.pid if record else None, told["python"], told["modules"], told["prefix"])


def conflict(evidence: tuple[Evidence, ...]) -> list[str]:
    """Return the modules whose major versions differ between the workers."""
    majors = {name: {each.modules[name][0].split(".")[0] for each in evidence} for name in MODULES}
    return [name for name, found in majors.items() if len(found) > 1]
