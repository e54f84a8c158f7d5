"""What a command says: one JSON document, or tables and lines for people; rich is used where it is installed and on a terminal.

Results go to stdout, progress and errors to stderr, so that the output of ``--json`` is always one document.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from comfy_env.errors import ComfyEnvError

try:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    HAS_RICH = True
except ImportError:  # the extra `cli` is not installed
    HAS_RICH = False

COLOURS = {"ready": "green", "busy": "cyan", "ok": "green", "missing": "yellow", "stale": "yellow", "building": "cyan",
           "broken": "red", "moved": "red", "problem": "red", "warning": "yellow", "wedged": "red", "parked": "red"}


class Screen:
    """Where a command's words go. ``as_json`` keeps stdout for the one document of `document`."""

    def __init__(self, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err
        for stream in (self.out, self.err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")   # a terminal that lacks a letter is no reason to fail
        self.rich = HAS_RICH and not as_json and self.out.isatty()

    def document(self, value: Any) -> None:
        """Write the JSON document of the command; nothing without ``--json``."""
        if self.as_json:
            self.out.write(json.dumps(value, indent=2, default=str) + "\n")

    def say(self, *lines: str) -> None:
        """Write lines for people."""
        if not self.as_json:
            self.out.writelines(f"{line}\n" for line in lines)

    def note(self, line: str) -> None:
        """Write a line that is no part of the result."""
        self.err.write(f"{line}\n")
        self.err.flush()

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "nothing") -> None:
        """Write a table for people; ``empty`` where there is no row. A column that says nothing is left out."""
        if self.as_json:
            return
        texts = [[_cell(value) for value in row] for row in rows]
        told = [column for column in range(len(heads)) if any(row[column] for row in texts)]
        heads, texts = [heads[column] for column in told], [[row[column] for column in told] for row in texts]
        if not texts:
            self.say(empty)
        elif self.rich:
            self._rich_table(heads, texts)
        else:
            self.say(*plain_table(heads, texts))

    def _rich_table(self, heads: Sequence[str], texts: list[list[str]]) -> None:
        table = Table(*heads, box=None, header_style="bold", pad_edge=False)
        for row in texts:
            table.add_row(*(_coloured(text) for text in row))
        Console(file=self.out).print(table)

    def failure(self, error: BaseException) -> None:
        """Tell an error: in words on stderr, with ``--json`` as the document too."""
        self.note(f"{type(error).__name__}: {error}")
        if self.as_json:
            self.document({"error": error_facts(error)})


def error_facts(error: BaseException) -> dict[str, Any]:
    """Return an error's readable parts."""
    facts: dict[str, Any] = {"type": type(error).__name__, "message": getattr(error, "message", str(error))}
    if isinstance(error, ComfyEnvError):
        facts |= {name: getattr(error, name) for name in ("env", "generation", "pid", "status", "output", "story", "hint")}
    return facts


def plain_table(heads: Sequence[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of an aligned table; the last column is not padded."""
    widths = [max(len(row[column]) for row in [list(heads), *rows]) for column in range(len(heads))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in [list(heads), *rows]]


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _coloured(text: str) -> str:
    colour = COLOURS.get(text)
    return f"[{colour}]{escape(text)}[/]" if colour else escape(text)


def in_bytes(count: int | None) -> str:
    """Return a size for people."""
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def in_time(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
