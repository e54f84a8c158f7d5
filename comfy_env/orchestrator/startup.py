"""From a locked state folder and a listener to a service that runs: the second half of a start, with everything imported."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from comfy_env.hooks.agents import AgentPlugins
from comfy_env.hooks.sources import Offer
from comfy_env.orchestrator import devwatch, front, opening
from comfy_env.orchestrator.instance import Instance
from comfy_env.orchestrator.pipe import Heir
from comfy_env.orchestrator.service import Service
from comfy_env.orchestrator.settings import OrchestratorSettings
from comfy_env.orchestrator.situation import Situation
from comfy_env.orchestrator.supervise import Life


@dataclass(frozen=True)
class Start:
    """What the first half of a start found."""

    instance: Instance
    listener: socket.socket
    settings: OrchestratorSettings
    life: Life
    boot: devwatch.Snapshot
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    heir: Heir | None
    lineage: int | None
    terminal: bool

    def situation(self) -> Situation:
        return Situation(
            instance=self.instance,
            listener=self.listener,
            settings=self.settings,
            life=self.life,
            boot=self.boot,
            argv=self.argv,
            environ=self.environ,
            generation=self.heir.generation if self.heir else None,
            terminal=self.terminal,
            heir=self.heir is not None,
            watched=devwatch.is_checkout(),
        )


def run(start: Start, plugins: Sequence[str], await_word: Callable[[], None]) -> tuple[int, tuple[int, int] | None]:
    """Serve; return the status and, where this process must stay in the terminal, the front's pipe and the successor."""
    found = AgentPlugins([(target, Offer(target, target, target).load()) for target in plugins])
    _ = found.agents, found.blockers   # found before anybody relies on it
    if start.heir is not None:
        opening.look(start.instance.folder)
    await_word()
    lineage = Lineage(start)
    try:
        code, handed_over, pid = asyncio.run(_serve(start, found, lineage))
        stays = handed_over and lineage.first and pid
        return code, (lineage.keep(), pid) if stays else None
    finally:
        lineage.close()


async def _serve(start: Start, plugins: AgentPlugins, lineage: Lineage) -> tuple[int, bool, int]:
    service = Service(start.situation(), plugins, start.heir, lineage.write)
    code, handed_over = await service.run()
    if handed_over and lineage.first:
        signal.pthread_sigmask(signal.SIG_BLOCK, front.SIGNALS)   # until the front can hear them
    replacement = service.restarter.replacement
    return code, handed_over, replacement.pid if replacement is not None else 0


class Lineage:
    """The pipe on which generations tell the front who serves. The first process in a terminal makes it.

    A successor keeps its end until the very end of its process: that it closes is how the front knows.
    """

    def __init__(self, start: Start) -> None:
        self.first = start.terminal and start.heir is None
        ends: tuple[int | None, int | None] = os.pipe() if self.first else (None, start.lineage)
        self.read, self.write = ends

    def keep(self) -> int:
        """Give the reading end away."""
        read, self.read = self.read, None
        assert read is not None
        return read

    def close(self) -> None:
        for fd in (self.read, self.write) if self.first else ():
            if fd is not None:
                os.close(fd)
        self.read = self.write = None
