"""What the contract's tests play on: a pool around the backend under test, a spy in between, threads that call."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from comfy_env.hooks import Registry
from comfy_env.pool import WorkerPool
from comfy_env.settings import Settings
from comfy_env.testing.audit import wait_until
from comfy_env.testing.spies import Spy
from comfy_env.values import CallOptions, EnvPlan

GUEST = Path(__file__).with_name("guest")
PROBE = "contract_probe"
LIMIT = 30.0
"""Seconds no single step of a test may exceed."""

def needs(*capabilities: str) -> Callable[[Any], Any]:
    """Mark a rule that only holds for a backend that claims these capabilities."""

    def mark(test: Any) -> Any:
        test.contract_needs = capabilities
        return test

    return mark


class Stage:
    """A pool around the backend under test, a spy in between, and threads that call. ``ports`` are given to the pool."""

    def __init__(self, backend: Any, plan: EnvPlan, folder: Path, settings: Settings, **ports: Any) -> None:
        self.spy = Spy()
        self.folder = folder
        self.registry = Registry(wrappers=[self.spy], find=lambda group: ())
        self.relay = self.registry.register("backend-under-test", backend, owner="the contract")
        self.plan = replace(plan, backend="backend-under-test", import_roots=(*plan.import_roots, GUEST))
        self.pool = WorkerPool(settings, registry=self.registry, **ports)
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="contract caller")

    def call(self, function: str, *args: Any, plan: EnvPlan | None = None, **options: Any) -> Any:
        return self.start(function, *args, plan=plan, **options).result(LIMIT)

    def start(self, function: str, *args: Any, plan: EnvPlan | None = None, **options: Any) -> Any:
        """Call on a thread of its own and return the future."""
        plan = plan or self.plan
        return self._threads.submit(self.pool.call, plan, f"{PROBE}:{function}", *args, options=CallOptions(**options))

    def held(self, function: str = "hold") -> Any:
        """Start a call that stays until `go`, wait until it runs, return its future."""
        future = self.start(function, str(self.folder))
        wait_until(lambda: (self.folder / "began").exists() or future.done(), LIMIT, "the call began")
        return future

    def go(self) -> None:
        (self.folder / "go").touch()

    def close(self) -> None:
        self.go()
        self.pool.close()
        self._threads.shutdown()
