"""What is told and kept of one build: progress for the one who asked, the full output in a log file, no secret in either."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from comfy_env.envs import tools
from comfy_env.errors import BuildFailed
from comfy_env.packs.redact import clean
from comfy_env.values import BuildStep

QUIET_SECONDS = 2.0
KEPT_LINES = 40


def _private(name: str, flags: int) -> int:
    """Open a file for this user only, also one that an older build left open to others."""
    fd = os.open(name, flags, 0o600)
    with contextlib.suppress(OSError):  # another user's file in a shared folder: it stays as it is
        os.chmod(name, 0o600)
    return fd


class Journal:
    """The log and the progress of a build; a context manager."""

    def __init__(self, key: str, log: Path, report: Callable[[BuildStep], None]) -> None:
        self.key = key
        self.log = log
        self.share: float | None = None
        self.secrets: tuple[str, ...] = ()
        self.tail: deque[str] = deque(maxlen=KEPT_LINES)
        self._report = report
        self._told = time.monotonic()
        self._out: TextIO | None = None

    def __enter__(self) -> Journal:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._out = open(self.log, "w", encoding="utf-8", errors="replace", opener=_private)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.note(f"ended: {kind.__name__ if kind else ''}: {getattr(error, 'message', error)}")
        if self._out is not None:
            self._out.close()

    def note(self, line: str) -> None:
        """Write a line to the log only."""
        if self._out is not None and not self._out.closed:
            self._out.write(f"{time.strftime('%H:%M:%S')} {clean(line, self.secrets)}\n")
            self._out.flush()

    def say(self, text: str, share: float | None = None) -> None:
        """Tell a step to the log and to the one who asked for the build."""
        self.share = self.share if share is None else share
        self.note(text)
        self._tell(clean(text, self.secrets))

    def run(self, what: str, argv: Sequence[object], env: Mapping[str, str], cwd: Path,
            hint: Callable[[Iterable[str]], str] = lambda lines: "") -> None:
        """Run a tool; raises BuildFailed with its last lines, the log and what `hint` says of them where it does not end well."""
        self.say(what)
        self.note("$ " + " ".join(str(part) for part in argv))
        self.tail.clear()
        begun = time.monotonic()
        trouble = tools.follow(argv, self._hear, lambda: self._remind(what, begun), env, cwd)
        if trouble:
            raise self.failure(f"{what}: {Path(str(argv[0])).name} {trouble}", hint(self.tail))

    def failure(self, what: str, hint: str = "") -> BuildFailed:
        """Return the error of this build."""
        where = f"the full output is in {self.log}"
        return BuildFailed(clean(what, self.secrets), env=self.key, output=tuple(self.tail), hint=f"{where}; {hint}" if hint else where)

    def _hear(self, line: str) -> None:
        line = clean(line, self.secrets)
        self.tail.append(line)
        self.note(line)
        self._tell(line.strip())

    def _remind(self, what: str, begun: float) -> None:
        if time.monotonic() - self._told >= QUIET_SECONDS:
            self._tell(f"{what}: {time.monotonic() - begun:.0f} s so far")

    def _tell(self, text: str) -> None:
        self._told = time.monotonic()
        self._report(BuildStep(self.key, text, self.share))
