"""A pool whose workers carry faults: real processes on the real wire, with a fault planted at a chosen moment."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from comfy_env import EnvPlan, WorkerPool
from comfy_env.backends.local import LocalBackend
from comfy_env.hooks import Registry
from comfy_env.process import procs
from comfy_env.settings import Settings
from comfy_env.testing.spies import Spy
from comfy_env.values import Launch
from tests.faults.fake_worker import VARIABLE
from tests.process.kit import carriers

HERE = Path(__file__).parent
PROGRAM = HERE / "fake_worker.py"
PACK = HERE / "pack"
CODE = HERE.parent / "code"
PATIENT = {"birth": 30.0, "spawn": 20.0, "kill": 10.0, "crash_limit": 1000, "crash_window": 0.0}


class FaultyBackend(LocalBackend):
    """Starts the fake worker program in the real one's place where a plan asks for a fault."""

    def launch_for(self, launch: Launch) -> Launch:
        if VARIABLE not in launch.variables:
            return launch
        python, *flags, folder, boot, source = launch.argv
        return replace(launch, argv=(python, *flags, str(PROGRAM), folder, boot, source))


class Ward:
    """``spy`` sees every verb; `fired` tells how often the fault of a plan was fired, by the fake workers' own words."""

    def __init__(self, folder: Path, *, wrappers: tuple[Any, ...] = (), ports: dict[str, Any] | None = None, backend: Any = None,
                 **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.spy = Spy()
        self.settings = Settings(**{**PATIENT, "runtime_folder": folder / "run", "log_folder": folder / "logs", **settings})
        self.registry = Registry(wrappers=[*wrappers, self.spy], settings=self.settings, find=lambda group: ())
        self.registry.register("faulty", backend or FaultyBackend(), owner="the reliability table")
        self.pool = WorkerPool(self.settings, registry=self.registry, **(ports or {}))

    def __enter__(self) -> Ward:
        return self

    def __exit__(self, *told: object) -> None:
        self.close()

    def close(self) -> None:
        self.pool.close()

    def plan(self, key: str = "a", python: str = sys.executable, fault: dict[str, Any] | None = None, **more: Any) -> EnvPlan:
        """Return a plan; ``fault`` is what `fake_worker` reads: {"when": …, "how": …}, until a generation (1)."""
        variables = dict(more.pop("variables", {}))
        if fault is not None:
            variables[VARIABLE] = json.dumps({"log": str(self.log(key)), "until": 1, **fault})
        return EnvPlan(key=key, backend="faulty", interpreter=Path(python), root=CODE, import_roots=(PACK,), variables=variables, **more)

    def log(self, key: str = "a") -> Path:
        return self.folder / f"{key}.fired"

    def fired(self, key: str = "a") -> int:
        """Return how many faults the workers of a plan fired."""
        log = self.log(key)
        return len(log.read_text().splitlines()) if log.exists() else 0

    def call(self, plan: EnvPlan, target: str, *args: Any, **more: Any) -> Any:
        return self.pool.call(plan, target if ":" in target else f"fault_pack:{target}", *args, **more)

    def alive(self) -> list[int]:
        """Return every process that belongs to any worker this ward ever launched."""
        nonces = [launch.nonce for launch in self.spy.launches]
        return [pid for nonce in nonces for pid in carriers(nonce)]

    def litter(self) -> list[str]:
        """Return the run folders of workers that are there now."""
        return [str(path) for path in (self.folder / "run").glob("host-*/w-*")]


def zombies() -> list[int]:
    """Return our own children that ended and were not collected."""
    return [row.pid for row in procs.rows() if row.parent == os.getpid() and row.dead]
