"""What a run did: one row per node, in plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from comfy_env.runner.problems import NodeFailed

DONE, CACHED, FAILED, SKIPPED = "done", "cached", "failed", "skipped"


@dataclass(frozen=True)
class Row:
    """One node: where it ran, for how long, and how it went.

    For a cached node, pid, generation and seconds are those of the run its values come from.
    """

    node: str
    class_type: str
    title: str
    pack: str
    env: str
    state: str
    python: str = ""
    libraries: tuple[tuple[str, str], ...] = ()
    pid: int | None = None
    generation: int = 0
    seconds: float = 0.0
    calls: int = 0
    error: NodeFailed | None = None
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("error", "libraries")}
        told = {"libraries": dict(self.libraries), "cached": self.state == CACHED}
        return {**plain, **told, "error": str(self.error) if self.error else None}


@dataclass(frozen=True)
class Report:
    """A run: its rows in the order the nodes ended, each node's output lists, and what is meant for the screen."""

    rows: tuple[Row, ...]
    outputs: Mapping[str, list[list[Any]]] = field(repr=False, default_factory=dict)
    ui: Mapping[str, dict[str, list[Any]]] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Say whether every node that had to run has its values."""
        return not self.interrupted and all(row.state in (DONE, CACHED) for row in self.rows)

    @property
    def errors(self) -> tuple[NodeFailed, ...]:
        return tuple(row.error for row in self.rows if row.error is not None)

    def row(self, node: str) -> Row:
        """Return the row of a node; KeyError if it had no reason to run."""
        for row in self.rows:
            if row.node == node:
                return row
        raise KeyError(node)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, without the outputs."""
        rows = [row.as_json() for row in self.rows]
        return {"ok": self.ok, "interrupted": self.interrupted, "seconds": self.seconds, "rows": rows, "ui": dict(self.ui)}


HEADINGS = ("node", "class", "pack", "env", "python", "libraries", "pid", "gen", "seconds", "state")


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's texts, one per heading."""
    libraries = ", ".join(f"{name} {version}" for name, version in row.libraries)
    pid = "" if row.pid is None else str(row.pid)
    generation = str(row.generation) if row.generation else ""
    seconds = f"{row.seconds:.2f}" if row.calls else ""
    return (row.node, row.class_type, row.pack, row.env, row.python, libraries, pid, generation, seconds, row.state)


def table(rows: tuple[Row, ...]) -> list[str]:
    """Return the rows as aligned lines of text under their headings."""
    texts = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(HEADINGS))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in texts]
