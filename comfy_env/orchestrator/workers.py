"""The service's worker pool: made when it is first needed, ended before a handover, made anew after one that failed.

Workers are caches; ending them loses nothing. Calls in flight are counted here, and behind the fence none begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from comfy_env.orchestrator.problems import Fenced
from comfy_env.pool import WorkerPool
from comfy_env.values import Busy, CallOptions, EnvPlan, Idle, Released, Verdict

_RESTING = ("ready", "pinging", "releasing", "closing", "parked", "wedged", "cold", "gone")


class Workers:
    """Thread-safe. `make` returns a new pool."""

    def __init__(self, make: Callable[[], WorkerPool] = WorkerPool, now: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._now = now
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None
        self._calls: dict[int, tuple[str, float]] = {}
        self._number = 0
        self.fenced = False

    async def call(self, plan: EnvPlan, target: str, *args: Any, options: CallOptions | None = None) -> Any:
        """Run a call as `WorkerPool.call_async` does; raises Fenced while a restart is under way."""
        number, pool = self._begin(plan)
        try:
            return await pool.call_async(plan, target, *args, options=options)
        finally:
            with self._lock:
                self._calls.pop(number, None)

    def _begin(self, plan: EnvPlan) -> tuple[int, WorkerPool]:
        with self._lock:
            if self.fenced:
                raise Fenced("a restart is under way", env=plan.key)
            if self._pool is None:
                self._pool = self._make()
            self._number += 1
            self._calls[self._number] = (plan.key, self._now())
            return self._number, self._pool

    def verdict(self) -> Verdict:
        """Say whether a call is in flight, ours or one that somebody else put on the pool."""
        with self._lock:
            calls, pool = list(self._calls.values()), self._pool
        if calls:
            envs = ", ".join(sorted({env for env, _ in calls}))
            return Busy(f"{len(calls)} in {envs}", min(since for _, since in calls))
        busy = [record.env for record in pool.records() if record.state not in _RESTING] if pool else []
        return Busy(f"in {', '.join(busy)}") if busy else Idle()

    def rows(self) -> list[dict[str, Any]]:
        """Return a picture of every worker, for people."""
        pool = self._pool
        if pool is None:
            return []
        names = ("env", "generation", "state", "backend", "pid", "python", "idle", "held", "calls")
        return [{name: getattr(record, name) for name in names} | {"story": pool.story(record.env)[-12:]} for record in pool.records()]

    def interrupt(self, plan: EnvPlan) -> bool:
        return self._pool is not None and self._pool.interrupt(plan)

    def release(self, env: str) -> Released | None:
        return self._pool.release(env) if self._pool is not None else None

    def reap(self, env: str) -> bool:
        return self._pool is not None and self._pool.kill(env)

    def close(self) -> None:
        """End all workers; the next call makes a new pool. Blocks up to the pool's shutdown limit."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
