"""Who hears of a run while it goes on. Calls come from several threads."""

from __future__ import annotations

from typing import Protocol

from comfy_env.runner.catalog import NodeClass
from comfy_env.runner.report import Row
from comfy_env.runner.workflow import Node
from comfy_env.values import BuildStep, Progress


class Watcher(Protocol):
    """Hears builds, nodes and their progress; must not block."""

    def building(self, step: BuildStep) -> None: ...
    def starting(self, total: int) -> None: ...
    def started(self, node: Node, kind: NodeClass) -> None: ...
    def progress(self, node: Node, progress: Progress) -> None: ...
    def ended(self, row: Row) -> None: ...


class Silence:
    """A watcher that ignores everything."""

    def building(self, step: BuildStep) -> None:
        """A build made a step."""

    def starting(self, total: int) -> None:
        """A run of `total` nodes begins."""

    def started(self, node: Node, kind: NodeClass) -> None:
        """A node begins."""

    def progress(self, node: Node, progress: Progress) -> None:
        """A node made progress."""

    def ended(self, row: Row) -> None:
        """A node ended."""
