"""A pool without processes: it runs the named functions here, and fails on demand the way a real one does."""

from __future__ import annotations

import importlib
import os
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

from comfy_env.errors import ComfyEnvError, NodeRaised


class FakePool:
    """Keeps the calls in `calls` as (verb, class or None); `failing` maps a class to the errors its next executions end with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.failing: dict[str, list[ComfyEnvError]] = {}
        self.interrupted: list[str] = []
        self.built: list[str] = []
        self.generations: Counter[str] = Counter()
        self.closed_envs: dict[str, ComfyEnvError] = {}
        self.options: list[Any] = []
        self._lock = threading.Lock()

    def build(self, plan: Any, progress: Any = None) -> Any:
        self.built.append(plan.key)
        return SimpleNamespace(key=plan.key)

    def call(self, plan: Any, target: str, *args: Any, options: Any = None, **kwargs: Any) -> Any:
        module, _, verb = target.partition(":")
        with self._lock:
            self.calls.append((verb, args[1] if verb != "describe" else None))
            self.options.append(options)
            self.generations.setdefault(plan.key, 1)
        if plan.key in self.closed_envs:
            raise self.closed_envs[plan.key]
        if verb == "execute" and self.failing.get(args[1]):
            self.generations[plan.key] += 1
            raise self.failing[args[1]].pop(0)
        try:
            return getattr(importlib.import_module(module), verb)(*args, **kwargs)
        except Exception as error:  # a node's own error is whatever it is
            raise NodeRaised(f"{type(error).__name__}: {error}", env=plan.key, generation=self.generations[plan.key]) from error

    def record(self, plan: Any) -> Any:
        return SimpleNamespace(pid=os.getpid(), generation=self.generations[plan.key]) if self.generations[plan.key] else None

    def interrupt(self, plan: Any) -> bool:
        self.interrupted.append(plan.key)
        return True

    def executed(self) -> list[str]:
        """Return the classes of the executions asked for, in order."""
        return [name or "" for verb, name in self.calls if verb == "execute"]


class Diary:
    """A watcher that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def building(self, step: Any) -> None:
        self.heard.append(("building", step.key))

    def starting(self, total: int) -> None:
        self.heard.append(("starting", total))

    def started(self, node: Any, kind: Any) -> None:
        self.heard.append(("started", node.id))

    def progress(self, node: Any, progress: Any) -> None:
        self.heard.append(("progress", (node.id, progress.value)))

    def ended(self, row: Any) -> None:
        self.heard.append(("ended", (row.node, row.state)))
