"""A worker's output: drained so that no pipe ever blocks it, told to the log, its last lines kept for errors."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from comfy_env.process.lines import LineCutter
from comfy_env.process.logfile import LogFile
from comfy_env.process.stacks import StackCatcher

log = logging.getLogger(__name__)
worker_log = logging.getLogger("comfy_env.worker")
KEPT_LINES = 40
_CHUNK = 65536
_CHUNKS = 16   # most chunks of one stream in one go, so that one noisy worker does not starve the others


class Output:
    """Everything one worker writes. Any thread may feed or ask.

    ``sink`` hears each line (default: the logger `comfy_env.worker`, with the environment's key in front); what it
    raises is logged once and stops nothing.
    """

    def __init__(
        self, env: str, generation: int = 0, log_file: Path | None = None, sink: Callable[[str], None] | None = None
    ) -> None:
        self.env = env
        self.generation = generation
        self._sink = sink or self._log
        self._sink_broke = False
        self._file = LogFile(log_file) if log_file else None
        self._cutters: dict[int, LineCutter] = {}
        self._ring: deque[str] = deque(maxlen=KEPT_LINES)
        self._stack = StackCatcher()
        self._lock = threading.Lock()      # over what can be asked
        self._feeding = threading.RLock()  # over the order of lines

    def feed(self, fd: int) -> bool:
        """Read what a non-blocking descriptor has now; False at its end."""
        with self._feeding:
            return self._read_on(fd)

    def _read_on(self, fd: int) -> bool:
        for _ in range(_CHUNKS):
            data = _read(fd)
            if data is None:
                return True
            if not data:
                self._finish(fd)
                return False
            self._take(self._cutter(fd).feed(data))
        return True

    def take(self, lines: list[str]) -> None:
        """Take lines that somebody else read."""
        with self._feeding:
            self._take(lines)

    def tail(self) -> tuple[str, ...]:
        """Return the last lines, unfinished ones too, without the stacks."""
        with self._lock:
            unfinished = [cutter.unfinished for cutter in self._cutters.values()]
            return tuple([*self._ring, *(line for line in unfinished if line)][-KEPT_LINES:])

    def stack_text(self) -> str:
        """Return the newest stack the worker's `faulthandler` wrote, '' if there is none."""
        with self._lock:
            return self._stack.text()

    def close(self) -> None:
        """Tell what is unfinished and close the log file; idempotent."""
        with self._feeding:
            for fd in list(self._cutters):
                self._finish(fd)
            if self._file:
                self._file.close()

    def _cutter(self, fd: int) -> LineCutter:
        with self._lock:
            return self._cutters.setdefault(fd, LineCutter())

    def _finish(self, fd: int) -> None:
        with self._lock:
            cutter = self._cutters.pop(fd, None)
        if cutter:
            self._take(cutter.finish())

    def _take(self, lines: list[str]) -> None:
        with self._lock:
            self._ring.extend([line for line in lines if not self._stack.take(line)])
        if self._file:
            self._file.write("".join(f"{line}\n" for line in lines))
        for line in lines:
            self._tell(line)

    def _tell(self, line: str) -> None:
        try:
            self._sink(line)
        except Exception as error:  # the host's log handlers are anybody's code; draining must go on
            if not self._sink_broke:
                self._sink_broke = True
                log.warning("the output of %s cannot be told: %r", self.env, error)

    def _log(self, line: str) -> None:
        worker_log.info("[%s] %s", self.env, line)


def _read(fd: int) -> bytes | None:
    """Return what is there, b'' at the end, None if nothing is there now."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None
    except OSError as error:
        log.debug("descriptor %d cannot be read any more: %s", fd, error)
        return b""
