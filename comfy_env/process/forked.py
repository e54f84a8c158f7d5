"""A worker's process that the zygote forked: the zygote's child, so its status is read off the system and collected there."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Protocol

from comfy_env.process import procs
from comfy_env.process.handle import LocalProcess
from comfy_env.process.waits import readable
from comfy_env.values import ExitStatus

LOST = "lost with the forker: the zygote it was forked from ended before it"


class Parent(Protocol):
    """The zygote as its children know it: who alone can collect them."""

    def lives(self) -> bool: ...
    def reap(self, pid: int) -> None: ...


class ForkedProcess(LocalProcess):
    """A grandchild of this process. While its zygote lives its number stays its own until `reap`, as a child's does."""

    def __init__(self, pid: int, outputs: tuple[int, ...] = (), *, parent: Parent, **facts: Any) -> None:
        self._parent = parent
        super().__init__(pid, outputs, **facts)

    def reap(self) -> ExitStatus | None:
        """Have the zygote collect it; None while it runs. Call it when the tree is empty."""
        with self._lock:
            self._look()
            collect, self._pinned = self._status is not None and self._pinned, self._pinned and self._status is None
        if collect:
            self._parent.reap(self._pid)
        self._collect_orphan()
        return self._status

    def _look(self) -> None:
        """Peek at the status; under the lock. What the system shows of an ended process stays until it is collected."""
        self._pinned = self._pinned and self._parent.lives()
        if self._status is None and self._may_have_ended():
            self._status = self._seen()

    def _may_have_ended(self) -> bool:
        """Tell whether its exit handle speaks: while that is silent the process runs, and /proc, which costs more, need not be read."""
        return not self._close.alive or readable([self._handle], 0)

    def _seen(self) -> ExitStatus | None:
        row = procs.row(self._pid)
        if row is not None and row.started == self.started and not row.dead:
            return None
        code = procs.wait_status(self._pid) if row is not None and row.started == self.started else None
        return ExitStatus(note=LOST) if code is None else told(code)

    def _collect_orphan(self) -> None:
        """Collect it where it became our own child, as all orphans do where the host is PID 1."""
        row = procs.row(self._pid)
        if row is not None and row.dead and row.parent == os.getpid() and row.started == self.started:
            with contextlib.suppress(ChildProcessError):  # collected by somebody else
                os.waitpid(self._pid, os.WNOHANG)


def told(code: int) -> ExitStatus:
    """Return what a wait status tells."""
    return ExitStatus(signal=os.WTERMSIG(code)) if os.WIFSIGNALED(code) else ExitStatus(code=os.WEXITSTATUS(code))
