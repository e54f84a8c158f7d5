"""What a process of the service was started into: fixed for its life, and what follows from it for a restart."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

import comfy_env
from comfy_env.orchestrator.devwatch import Snapshot
from comfy_env.orchestrator.handover import Estate
from comfy_env.orchestrator.instance import Instance
from comfy_env.orchestrator.restart import Rules
from comfy_env.orchestrator.settings import OrchestratorSettings
from comfy_env.orchestrator.supervise import Life

POOL_SLACK = 8.0       # killing what did not end by itself
CONFIRM_SLACK = 30.0
DRAIN_SLACK = 5.0


@dataclass(frozen=True)
class Situation:
    """``generation`` None: the one after the store's. ``lineage``: the front's pipe. ``watched``: sources may change under us."""

    instance: Instance
    listener: socket.socket
    settings: OrchestratorSettings
    life: Life
    boot: Snapshot
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    generation: int | None = None
    lineage: int | None = None
    terminal: bool = False
    heir: bool = False
    watched: bool = False

    @property
    def version(self) -> str:
        return comfy_env.__version__

    @property
    def url(self) -> str:
        host, port = self.listener.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{port}"

    def rules(self) -> Rules:
        given = self.settings
        return Rules(
            mode=self.life.mode,
            automatic=not given.updates_off,
            autorestart=bool(given.autorestart),
            updates=given.max_updates,
            fence=given.fence,
            hello=given.hello,
            listening=given.listening,
            pool_close=given.pool_close + POOL_SLACK,
            serving=given.serving,
            confirm=given.confirm + CONFIRM_SLACK,
            drain=given.drain + DRAIN_SLACK,
        )

    def estate(self, generation: int, lineage: int | None) -> Estate:
        """Return what the successor of a generation is started with."""
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"} if self.watched else {}   # a source tree is nobody's but its owner's
        return Estate(
            argv=self.argv,
            environ={**self.environ, **quiet},
            generation=generation + 1,
            listener=self.listener.fileno(),
            lock=self.instance.fd,
            lineage=lineage,
            detached=not self.terminal,
        )
