"""Recognising the stacks that `faulthandler` writes among a worker's other output."""

from __future__ import annotations

import re

_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+).*\(most recent call first\):$")
_FRAME = re.compile(r"^  (?:File \"|Binary file \"|<|\.\.\.|Garbage-collecting$)")
_TITLE = re.compile(r"^Current thread's C stack trace")
_MOST_LINES = 400


class StackCatcher:
    """Keeps the newest dump. A dump starts with a thread's heading and ends with the first line that cannot be part of it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._threads: set[str] = set()
        self._open = False

    def take(self, line: str) -> bool:
        """Return whether a line belongs to a dump, and keep it if so."""
        heading = _THREAD.match(line)
        if heading:
            self._start(heading.group(1))
        elif not self._open or not (line == "" or _FRAME.match(line) or _TITLE.match(line)):
            self._open = False
            return False
        if len(self._lines) < _MOST_LINES:
            self._lines.append(line)
        return True

    def text(self) -> str:
        """Return the newest dump, '' if there was none."""
        return "\n".join(self._lines).strip("\n")

    def _start(self, thread: str) -> None:
        """Go on with the open dump, or begin a new one: within one dump no thread comes twice."""
        if not self._open or thread in self._threads:
            self._lines, self._threads = [], set()
        self._open = True
        self._threads.add(thread)
