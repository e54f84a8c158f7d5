"""What several tests of the orchestrator use: a running loop, scripted workers, sessions over a real store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from comfy_env.orchestrator import messages
from comfy_env.orchestrator.opening import open_known
from comfy_env.orchestrator.sessions import Sessions
from comfy_env.orchestrator.store import Row, Store
from comfy_env.orchestrator.workers import Workers
from comfy_env.values import AgentSpec, EnvPlan, Idle, Progress


def run(work: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
    """Run a coroutine function to its end within a deadline."""

    async def limited() -> Any:
        return await asyncio.wait_for(work(), seconds)

    return asyncio.run(limited())


async def until(question: Callable[[], Any], seconds: float = 10.0, what: str = "") -> Any:
    """Poll until the answer is true."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + seconds
    while not (answer := question()):
        assert loop.time() < limit, f"not within {seconds} s: {what or question}"
        await asyncio.sleep(0.005)
    return answer


class ScriptedWorkers(Workers):
    """Workers whose calls wait for the test: `asked` lists what agents were given, `finish` ends the oldest call."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.options: list[Any] = []
        self._open: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self._calls_open = 0

    async def call(self, plan, target, *args, options=None):
        self.asked.append(args[0])
        self.options.append(options)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._open.put(future)
        self._calls_open += 1
        try:
            return await future
        finally:
            self._calls_open -= 1

    async def finish(self, answer: Any = None) -> None:
        future = await self._open.get()
        future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer or {"text": "done"})

    def say(self, value: Any) -> None:
        self.options[-1].on_progress(Progress(0, 0, preview=value))

    def verdict(self):
        return super().verdict() if self._calls_open == 0 else Idle()


def agent(name: str = "echo", **more: Any) -> AgentSpec:
    return AgentSpec(name, EnvPlan.existing(sys.executable, name), "echo_agent:answer", **more)


AGENTS = {spec.name: spec for spec in (agent("echo"), agent("gpu", shares_gpu=True), agent("safe", replay_safe=True))}


@contextlib.asynccontextmanager
async def service(folder: Path, workers: Workers | None = None, rows: list[Row] | None = None, **more: Any) -> AsyncIterator[Sessions]:
    """Sessions over a store in a folder, from taking it to giving it up."""
    heard = (rows if rows is not None else []).extend
    store = Store.open(
        open_known(folder),
        generation=None,
        pid=os.getpid(),
        first=lambda t: messages.recover(t, [name for name, spec in AGENTS.items() if spec.replay_safe]),
        committed=heard,
    )
    sessions = Sessions(AGENTS, workers or ScriptedWorkers(), **more)
    await sessions.start(store)
    try:
        yield sessions
    finally:
        await sessions.stop()
        store.close()
