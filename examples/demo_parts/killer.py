"""Kills one worker in the middle of a node, once, the hard way."""

from __future__ import annotations

import os
import signal
from typing import Any

from comfy_env import Progress
from comfy_env.runner import Silence, Watcher


class Killer(Silence):
    """A watcher that kills the worker of `plan` when a node of class `victim` is `share` done; passes everything on to `after`."""

    def __init__(self, pool: Any, plan: Any, victim: str, share: float) -> None:
        self._pool, self._plan, self._victim, self._share = pool, plan, victim, share
        self.after: Watcher = Silence()
        self.killed: int | None = None
        self.at = ""

    def building(self, step):
        """Pass on."""
        self.after.building(step)

    def starting(self, total):
        """Pass on."""
        self.after.starting(total)

    def started(self, node, kind):
        """Pass on."""
        self.after.started(node, kind)

    def progress(self, node, progress: Progress):
        """Pass on, and strike when it is time."""
        self.after.progress(node, progress)
        due = node.class_type == self._victim and progress.total and progress.value / progress.total >= self._share
        record = self._pool.record(self._plan) if due and self.killed is None else None
        if record is not None and record.pid:
            self.killed = record.pid
            self.at = f"{progress.value:g} of {progress.total:g} rounds of node {node.id}"
            os.kill(record.pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def ended(self, row):
        """Pass on."""
        self.after.ended(row)
