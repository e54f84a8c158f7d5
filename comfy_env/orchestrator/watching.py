"""Carries out `devwatch`: looks at the sources, tests what has settled, and says what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from comfy_env.orchestrator import devwatch
from comfy_env.orchestrator.devwatch import Do, Snapshot, Watch
from comfy_env.orchestrator.events import Event, Found, Vanished
from comfy_env.orchestrator.target import Kind, Target

log = logging.getLogger(__name__)


class SourceWatch:
    """`boot` is what this process was started from; `test` runs the self-test; `post` and `note` hear the outcome."""

    def __init__(
        self,
        boot: Snapshot,
        test: Callable[[], Awaitable[dict[str, Any]]],
        post: Callable[[Event], Awaitable[None]],
        note: Callable[[str], None],
        serves: Callable[[], bool] = lambda: True,
        package: Path = devwatch.PACKAGE,
    ) -> None:
        self._boot = boot
        self._test = test
        self._post = post
        self._note = note
        self._serves = serves
        self._package = package
        self.watch = Watch.of(devwatch.fingerprint(boot))

    async def run(self, seconds: float) -> None:
        """Look again and again, but not beside a successor, which looks for itself."""
        while True:
            await asyncio.sleep(seconds)
            if self._serves():
                await self.look()

    async def look(self) -> None:
        seen = await asyncio.to_thread(devwatch.snapshot, self._package)
        self.watch, do = devwatch.looked(self.watch, devwatch.fingerprint(seen))
        if do is Do.CALL_OFF:
            await self._post(Vanished())
        elif do is Do.TEST:
            await self._judge(seen)

    async def _judge(self, seen: Snapshot) -> None:
        mark = devwatch.fingerprint(seen)
        problem = await self._problem(seen)
        again = devwatch.fingerprint(await asyncio.to_thread(devwatch.snapshot, self._package))
        if again != mark:
            self.watch, _ = devwatch.looked(self.watch, again)
            return
        self.watch, do = devwatch.tested(self.watch, mark, not problem)
        if do is Do.ARM:
            await self._post(Found(Target(Kind.TREE, mark, "new build")))
        elif do is Do.TELL:
            self._note(f"the sources changed and cannot be loaded: {problem}")

    async def _problem(self, seen: Snapshot) -> str:
        paths = devwatch.changed(self._boot, seen)
        problem = await asyncio.to_thread(devwatch.problem, paths, self._package)
        if problem:
            return problem
        found = await self._test()
        return "" if found["ok"] else found["problem"] or "its test failed"
