"""Asking plugins whether a restart would cost somebody something: each on a thread of its own, with a limit.

A plugin that hangs keeps its thread and is not asked again until it has answered; meanwhile it counts as unknown.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from comfy_env.orchestrator.gate import Blocker, Kind
from comfy_env.values import Busy, Idle, Unknown, Verdict

log = logging.getLogger(__name__)

Ask = Callable[[], Verdict]
NOT_ASKED = Unknown("not asked yet")


class PluginBlockers:
    """What plugins said last, since when by our own clock."""

    def __init__(self, asks: Mapping[str, Ask], limit: float, now: Callable[[], float]) -> None:
        self._asks = asks
        self._limit = limit
        self._now = now
        self._said: dict[str, Verdict] = dict.fromkeys(asks, NOT_ASKED)
        self._open: dict[str, asyncio.Future[Verdict]] = {}

    async def ask(self) -> None:
        """Ask every plugin at once and wait no longer than the limit."""
        loop = asyncio.get_running_loop()
        for name in self._asks:
            if name not in self._open:
                self._open[name] = loop.create_future()
                threading.Thread(target=self._one, args=(loop, name), name=f"blocker {name}", daemon=True).start()
        if self._open:
            await asyncio.wait(list(self._open.values()), timeout=self._limit)
        for name, future in list(self._open.items()):
            if future.done():
                del self._open[name]
            self._hear(name, future.result() if future.done() else Unknown(f"no answer within {self._limit:g} s"))

    def _one(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        try:
            verdict = self._asks[name]()
        except Exception as error:  # a plugin is somebody else's code: what it raises is its answer
            verdict = Unknown(f"{type(error).__name__}: {error}")
        if not isinstance(verdict, Idle | Busy | Unknown):
            verdict = Unknown(f"it answered {verdict!r}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, self._open[name], verdict)

    def _hear(self, name: str, verdict: Verdict) -> None:
        """Keep an answer; of one that stays busy or unknown, since when."""
        before = self._said[name]
        if isinstance(verdict, Busy | Unknown):
            since = getattr(before, "since", None) if type(before) is type(verdict) else None
            verdict = replace(verdict, since=self._now() if since is None else since)
        self._said[name] = verdict

    def blockers(self) -> Iterator[Blocker]:
        return (Blocker(Kind.PLUGIN, verdict, name) for name, verdict in self._said.items())


def _settle(future: asyncio.Future[Verdict], verdict: Verdict) -> None:
    if not future.done():
        future.set_result(verdict)
