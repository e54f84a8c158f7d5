"""The fallback: a worker that is a thread of this very process, under the same contract as the others.

The same guest loop serves the same two lanes over socket pairs, so calls, canary, release and generations are the real
ones. What a thread cannot keep is not claimed: it has no process and no dependencies of its own, a crash takes the
host with it, and Python code that will not end cannot be ended.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

from comfy_env.backends.inprocess.roots import Roots
from comfy_env.backends.inprocess.thread import GuestThread
from comfy_env.backends.inprocess.unmet import unmet
from comfy_env.backends.local import OverLanes
from comfy_env.hooks import hookimpl
from comfy_env.values import EnvPlan, EnvState, EnvStatus, Killed, Launch

KILL_SECONDS = 1.0
"""How long a kill waits for the loop to end; the lane is gone at once, only running Python code takes time."""


class InProcessBackend(OverLanes):
    """Runs each environment's worker on a daemon thread of the host."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._roots = Roots()

    @hookimpl
    def comfy_env_spawn(self, launch: Launch) -> GuestThread:
        document = _read_document(launch)
        lanes = [_own(document[name]) for name in ("main_fd", "side_fd")]
        launch.endpoint.child_started()
        roots = self._roots.borrow(launch.import_roots)
        return GuestThread(launch.env, launch.generation, document, (lanes[0], lanes[1]), roots)

    @hookimpl
    def comfy_env_inspect(self, plan: EnvPlan, probe: bool) -> EnvState:
        """Say what the plan asks for and this Python does not have: a thread cannot have it either."""
        trouble = unmet(plan)
        if trouble:
            reason = f"it would run in this very Python: {trouble}"
            return EnvState(plan.key, EnvStatus.BROKEN, reason=reason, fix='set backend = "venv" in the plan, or install it here')
        return EnvState(plan.key, EnvStatus.READY, Path(sys.executable), versions=(("python", platform.python_version()),))

    @hookimpl
    def comfy_env_kill(self, process: GuestThread, reason: str, replaced: bool) -> Killed:
        """Ask the loop and what it runs to end; say what still runs, for a thread cannot be killed."""
        status = process.stop(KILL_SECONDS)
        return Killed(status=status, note="" if status else _still_runs(process))


def _still_runs(process: GuestThread) -> str:
    return f"generation {process.generation} of env {process.env} still runs in this process; restart ComfyUI if it does not end by itself"


def _read_document(launch: Launch) -> dict[str, Any]:
    """Read the boot document as a worker does, from the endpoint's own descriptor."""
    with os.fdopen(os.dup(launch.endpoint.boot_fd), "rb") as stream:
        return json.loads(stream.read())


def _own(fd: int) -> socket.socket:
    """Return a socket of the worker's own for a descriptor that a process would have inherited."""
    return socket.socket(fileno=os.dup(fd))


backend = InProcessBackend()

__all__ = ["InProcessBackend", "backend"]
