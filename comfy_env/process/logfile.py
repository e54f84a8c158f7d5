"""A worker's log file: readable by its user only, turned over when it is full, never the reason a worker stops."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path

log = logging.getLogger(__name__)
MOST_BYTES = 4 * 2**20
KEEP = 2   # older files kept beside it: NAME.1, NAME.2


class LogFile:
    """Appends text. The first refusal of the system (a full disk) is logged; after it nothing more is written."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._most = most_bytes
        self._fd = -1
        self._broken = False

    def write(self, text: str) -> None:
        if self._broken or not text:
            return
        try:
            self._append(text.encode(errors="replace"))
        except OSError as error:
            self._broken = True
            log.warning("the log file %s takes nothing more: %s", self.path, error)
            self.close()

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, data: bytes) -> None:
        if self._fd < 0:
            self._open()
        if os.fstat(self._fd).st_size + len(data) > self._most:
            self._turn_over()
        os.write(self._fd, data)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)
        if stat.S_ISREG(os.fstat(self._fd).st_mode):  # never a device that somebody named as a log
            os.fchmod(self._fd, 0o600)

    def _turn_over(self) -> None:
        self.close()
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, KEEP + 1))]
        for older, newer in zip(reversed(names), list(reversed(names))[1:], strict=False):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        self._open()
