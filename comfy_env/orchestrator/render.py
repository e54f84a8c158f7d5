"""Watches ComfyUI's render queue: its own web socket as a wake-up, cheap polls as the truth.

The web socket may miss things and never decides anything; it only makes the next poll come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from comfy_env.orchestrator import renders
from comfy_env.orchestrator.problems import StaleOwner, StoreClosed
from comfy_env.orchestrator.renders import Queue, Render
from comfy_env.orchestrator.store import Job
from comfy_env.orchestrator.waiting import woken

log = logging.getLogger(__name__)

POLL = 2.0
LEAST = 0.2  # seconds between two polls, however often the web socket speaks
ANSWER = 5.0
PAUSE = 5.0
_TROUBLE = (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, KeyError, TypeError, AttributeError)
"""What asking a ComfyUI that is gone, is starting or is something else altogether raises."""


class Monitor:
    """`commit` runs a job in the store, `changed` hears every new state. `start` and `stop` may alternate."""

    def __init__(
        self,
        url: str,
        commit: Callable[[Job], Awaitable[Any]],
        changed: Callable[[Render], None],
        *,
        poll: float = POLL,
        client: str = "",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._url = url.rstrip("/")
        self._commit = commit
        self._changed = changed
        self._poll = poll
        self._client = client
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._tracked: set[str] = set()
        self._missing: set[str] = set()
        self._count: int | None = None
        self.render = Render(since=now())

    async def start(self) -> None:
        """Go on from what the store says is still open."""
        self._tracked = await self._commit(renders.tracked)
        self._tasks = [asyncio.create_task(self._watch(), name="render polls"), asyncio.create_task(self._listen(), name="render socket")]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------ polls

    async def _watch(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER)) as web:
            while True:
                await self._look(web)
                await woken(self._wake, self._poll)
                self._wake.clear()
                await asyncio.sleep(LEAST)

    async def _look(self, web: aiohttp.ClientSession) -> None:
        try:
            queue = await self._queue(web)
            ended = {prompt: await self._outcome(web, prompt) for prompt in self._tracked - set(queue.all)}
        except _TROUBLE as problem:
            log.debug("ComfyUI does not answer: %s", problem)
            self._count = None
            return self._become(self.render.missed(self._now()))
        with contextlib.suppress(StoreClosed, StaleOwner):  # changing hands: the successor sees the same and tells it
            await self._write_down(queue, ended)
        self._become(self.render.heard(queue, self._now()))

    async def _queue(self, web: aiohttp.ClientSession) -> Queue:
        """Return the queue; the long answer is asked for only if the short one changed or something is open."""
        count = int((await self._get(web, "/prompt"))["exec_info"]["queue_remaining"])
        if count == 0 and self._count == 0 and not self._tracked:
            return Queue()
        document = await self._get(web, "/queue")
        self._count = count
        return Queue(_ids(document["queue_running"]), _ids(document["queue_pending"]))

    async def _outcome(self, web: aiohttp.ClientSession, prompt: str) -> str:
        """Return how a prompt that left the queue ended; '' where the next look decides."""
        entry = (await self._get(web, f"/history/{prompt}")).get(prompt)
        if entry is not None:
            return renders.FAILED if entry.get("status", {}).get("status_str") == "error" else renders.DONE
        if prompt in self._missing:
            return renders.LOST
        self._missing.add(prompt)
        return ""

    async def _write_down(self, queue: Queue, ended: dict[str, str]) -> None:
        fresh = set(queue.all) - self._tracked
        told = {prompt: outcome for prompt, outcome in ended.items() if outcome}
        if not fresh and not told:
            return

        def job(t: Any) -> None:
            renders.track(t, fresh)
            for prompt, outcome in told.items():
                renders.close(t, prompt, outcome)

        await self._commit(job)
        self._tracked = (self._tracked | fresh) - set(told)
        self._missing -= set(told)

    async def _get(self, web: aiohttp.ClientSession, path: str) -> Any:
        async with web.get(self._url + path) as answer:
            answer.raise_for_status()
            return await answer.json()

    def _become(self, render: Render) -> None:
        before, self.render = self.render, render
        if (before.state, before.prompt) != (render.state, render.prompt):
            self._changed(render)

    # ------------------------------------------------------------ its web socket

    async def _listen(self) -> None:
        url = f"{self._url}/ws?clientId={self._client}"
        async with aiohttp.ClientSession() as web:
            while True:
                with contextlib.suppress(*_TROUBLE):  # the polls tell whether it is there
                    async with web.ws_connect(url, heartbeat=30.0, max_msg_size=0) as socket:
                        async for _ in socket:
                            self._wake.set()
                self._wake.set()
                await asyncio.sleep(PAUSE)


def _ids(entries: list[Any]) -> tuple[str, ...]:
    """Return the prompts of a list of the queue: each entry is [number, prompt, …]."""
    return tuple(str(entry[1]) for entry in entries)
