"""Cutting a stream of bytes into lines of text, in bounded memory, whatever the bytes are."""

from __future__ import annotations

import codecs

MOST_CHARACTERS = 4096
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in range(32) if chr(code) not in "\t\x1b"} | {127: "\N{REPLACEMENT CHARACTER}"}


class LineCutter:
    """Lines of one stream. A carriage return starts the line over, as a terminal shows it: of a progress bar only the
    last state remains. Of a line that is too long the beginning is kept and the rest counted.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._head = ""
        self._cut = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that ended."""
        *ended, rest = self._decoder.decode(data).split("\n")
        lines = []
        for part in ended:
            self._add(part)
            lines.append(self._take())
        self._add(rest)
        return lines

    def finish(self) -> list[str]:
        """Return the last line if the stream ended in the middle of it."""
        self._add(self._decoder.decode(b"", final=True))
        return [self._take()] if self._head else []

    @property
    def unfinished(self) -> str:
        """The line that has not ended yet, as it would be told."""
        return self._told()

    def _add(self, part: str) -> None:
        if "\r" in part or self._head.endswith("\r"):
            self._start_over(part)
            return
        room = MOST_CHARACTERS - len(self._head)
        self._head += part[:room]
        self._cut += max(0, len(part) - room)

    def _start_over(self, part: str) -> None:
        whole = self._head + part
        body = whole.rstrip("\r")
        visible = body.rpartition("\r")[2]
        self._cut = max(0, len(visible) - MOST_CHARACTERS)
        self._head = visible[:MOST_CHARACTERS] + ("\r" if body != whole else "")

    def _take(self) -> str:
        line = self._told()
        self._head, self._cut = "", 0
        return line

    def _told(self) -> str:
        line = self._head.rstrip("\r").translate(_CONTROLS)
        return f"{line} … ({self._cut} more characters)" if self._cut else line
