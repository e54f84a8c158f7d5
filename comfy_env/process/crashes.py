"""The crash pipe in the host's hand: what a worker's `faulthandler` tells while the process still gives back its memory.

Anybody in the worker may write into it, so nothing is believed of a process that is not seen to end: a forked child's
crash, or a pack that prints, is told to the log and changes nothing.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from comfy_env.process.lines import LineCutter
from comfy_env.process.output import Output
from comfy_env.process.patience import Patience
from comfy_env.process.stacks import StackCatcher
from comfy_env.process.waits import readable
from comfy_env.values import ExitStatus

PATIENCE = 0.2
"""Seconds that a process which says it crashed may take until it is seen to end."""
_LOOK = 0.0005
_CHUNK = 65536
_TOLD = re.compile(r"Fatal Python error: (.*)$")
SIGNALS = {
    "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS", "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
"""The signals `faulthandler` tells of, by its words for them."""


@dataclass(frozen=True)
class Crash:
    """How a process that has not ended yet will have ended, and its Python stack."""

    status: ExitStatus
    stack: str


class CrashPipe:
    """One worker's. Owns its descriptor; any thread may look. ``doomed`` tells whether the process's end has begun."""

    def __init__(self, fd: int, output: Output, doomed: Callable[[], bool]) -> None:
        self._fd = fd
        self._output = output
        self._doomed = doomed
        self._cutter = LineCutter()
        self._stack = StackCatcher()
        self._signal = ""
        self._over = False
        self._closed = False
        self._told: Crash | None = None
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor to wait on, -1 once nothing is to be learnt from it any more."""
        return -1 if self._over else self._fd

    def look(self) -> Crash | None:
        """Read what is there; return the crash once one was told and the process is seen to end."""
        with self._lock:
            if not self._over:
                self._read()
                if self._signal:
                    self._over = True
                    self._told = self._believed()
            return self._told

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        with self._lock:
            self._over = True
            if not self._closed:
                self._closed = True
                os.close(self._fd)

    def _believed(self) -> Crash | None:
        """Wait until the process is seen to end: by then it has written all it will."""
        patience = Patience(PATIENCE)
        while not self._doomed():
            if not patience.left():
                return None
            if readable([self._fd], _LOOK) and not self._read():
                readable([], _LOOK)
        self._read()
        return Crash(ExitStatus(signal=getattr(signal, self._signal)), self._stack.text())

    def _read(self) -> bool:
        """Take what is there into the log; False where nothing was."""
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._over = True   # every end that could write is closed
            return False
        lines = self._cutter.feed(data)
        for line in lines:
            said = _TOLD.match(line)
            self._signal = self._signal or (SIGNALS.get(said.group(1), "") if said else "")
            self._stack.take(line)
        self._output.take(lines)
        return True
