"""Shows a run while it goes on: moving bars on a terminal that has rich, else a line per event."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from comfy_env.runner.catalog import NodeClass
from comfy_env.runner.report import DONE, FAILED, Row
from comfy_env.runner.watch import Silence, Watcher
from comfy_env.runner.workflow import Node
from comfy_env.values import BuildStep, Progress


@contextmanager
def watching(stream: TextIO | None = None, bars: bool | None = None) -> Iterator[Watcher]:
    """Yield a watcher that writes to `stream` (default: stderr); `bars` None: bars if it is a terminal and rich is there."""
    stream = sys.stderr if stream is None else stream
    if bars is None:
        bars = stream.isatty() and importlib.util.find_spec("rich") is not None
    if not bars:
        yield Lines(stream)
        return
    console = importlib.import_module("rich.console").Console(file=stream)
    with importlib.import_module("rich.progress").Progress(console=console, transient=True) as shown:
        yield Bars(shown)


class Lines(Silence):
    """Writes one line per event, and one per build step or tenth of progress at most every second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, str]] = {}

    def building(self, step: BuildStep) -> None:
        """Write the step unless it repeats the one before."""
        share = "" if step.share is None else f" {step.share:4.0%}"
        if self._due(f"build {step.key}", step.text, 0.0):
            self._write(f"  build {step.key}{share}  {step.text}")

    def progress(self, node: Node, progress: Progress) -> None:
        """Write how far the node is."""
        share = progress.value / progress.total if progress.total else 0.0
        if self._due(f"node {node.id}", f"{share:.1f}", 1.0):
            self._write(f"  node {node.id} {node.class_type}: {progress.value:g} of {progress.total:g}")

    def ended(self, row: Row) -> None:
        """Write how the node ended."""
        self._write(f"  {ending(row)}")

    def _due(self, what: str, text: str, seconds: float) -> bool:
        now = time.monotonic()
        with self._lock:
            then, before = self._last.get(what, (-seconds, ""))
            due = text != before and now - then >= seconds
            if due:
                self._last[what] = (now, text)
            return due

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(text + "\n")
            self._stream.flush()


class Bars(Silence):
    """Shows a bar per build and per running node, and a line per node that ended."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._tasks: dict[str, Any] = {}

    def building(self, step: BuildStep) -> None:
        """Move the build's bar."""
        task = self._task(f"build {step.key}", f"build {step.key}", 1.0)
        self._shown.update(task, description=_plain(f"build {step.key}  {step.text[:60]}"))
        if step.share is not None:
            self._shown.update(task, completed=step.share)

    def starting(self, total: int) -> None:
        """Take the builds' bars away."""
        with self._lock:
            tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            self._shown.remove_task(task)

    def started(self, node: Node, kind: NodeClass) -> None:
        """Show a bar that does not know its length yet."""
        self._task(node.id, f"{node.class_type} in {kind.home.plan.key}", None)

    def progress(self, node: Node, progress: Progress) -> None:
        """Move the node's bar."""
        self._shown.update(self._task(node.id, node.class_type, progress.total), completed=progress.value, total=progress.total)

    def ended(self, row: Row) -> None:
        """Replace the node's bar by a line."""
        with self._lock:
            task = self._tasks.pop(row.node, None)
        if task is not None:
            self._shown.remove_task(task)
        self._shown.console.print(ending(row), markup=False, highlight=False)

    def _task(self, what: str, text: str, total: float | None) -> Any:
        with self._lock:
            if what not in self._tasks:
                self._tasks[what] = self._shown.add_task(_plain(text), total=total)
            return self._tasks[what]


def _plain(text: str) -> str:
    """Return text that rich shows as it is: a column renders markup."""
    return text.replace("[", "\\[")


def ending(row: Row) -> str:
    """Return one line on how a node ended."""
    where = f"{row.env}, pid {row.pid}, generation {row.generation}" if row.pid else row.env
    why = f": {row.reason}" if row.reason else ""
    took = f" in {row.seconds:.2f} s" if row.state in (DONE, FAILED) else ""
    return f"node {row.node} {row.class_type} {row.state}{took} ({where}){why}"
