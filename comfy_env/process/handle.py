"""A worker's process in the host's hand. Its number stays its own until `reap`, which only the one kill calls."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comfy_env.process import procs, shortage
from comfy_env.process.exits import open_exit_handle
from comfy_env.values import ExitStatus, Process

log = logging.getLogger(__name__)
LOST = "another part of this process collected it, or SIGCHLD is ignored"


class LocalProcess:
    """A child that leads its own session and group (`values.Process`).

    ``pinned`` says that nobody collected its exit status yet: so long, its number, and that of its group and session,
    cannot belong to anybody else.
    """

    def __init__(
        self,
        pid: int,
        outputs: tuple[int, ...] = (),
        *,
        nonce: str = "",
        env: str = "",
        generation: int = 0,
        run_folder: Path | None = None,
        data: Any = None,
    ) -> None:
        self.nonce = nonce
        self.env = env
        self.generation = generation
        self.run_folder = run_folder
        row = procs.row(pid)
        self.started = row.started if row else 0
        self.kills_before = shortage.kills()
        self._pid = pid
        self._outputs = outputs
        self._data = data
        self._lock = threading.Lock()
        self._status: ExitStatus | None = None
        self._pinned = True
        self._handle = open_exit_handle(pid)
        self._close = weakref.finalize(self, _close_all, (self._handle, *outputs))
        self._close.atexit = False  # a pool that closes at exit still waits on them

    def __repr__(self) -> str:
        return f"<LocalProcess {self._pid} of env {self.env}, generation {self.generation}>"

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def outputs(self) -> tuple[int, ...]:
        return self._outputs

    @property
    def data(self) -> Any:
        return self._data

    @property
    def pinned(self) -> bool:
        with self._lock:
            self._look()
            return self._pinned

    def watch(self) -> int | None:
        """Return the exit handle while it says something new: at an ended process it is readable for ever."""
        return None if self.exit_status() else self._handle

    def exit_handle(self) -> int:
        """Return the descriptor that becomes readable at exit; it belongs to this object."""
        return self._handle

    def exit_status(self) -> ExitStatus | None:
        """Return how it ended, None while it runs; never reaps."""
        with self._lock:
            self._look()
            return self._status

    def signal_group(self, signum: int) -> bool:
        """Send a signal to its group; False where the group's number may no longer be its own, or nobody is left."""
        with self._lock:
            self._look()
            if not self._pinned:
                return False
            try:
                os.killpg(self._pid, signum)
            except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
                return False
            return True

    def reap(self) -> ExitStatus | None:
        """Collect the exit status and give the number back; None while it runs. Call it when the tree is empty."""
        with self._lock:
            self._look()
            if self._status is not None and self._pinned:
                with contextlib.suppress(ChildProcessError):  # collected by somebody else since the look
                    os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
                self._pinned = False
            return self._status

    def close(self) -> None:
        """Close its descriptors; idempotent."""
        self._close()

    def _look(self) -> None:
        """Peek at the status; under the lock."""
        if not self._pinned:
            return
        try:
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self._pinned = False
            self._status = self._status or ExitStatus(note=LOST)
        except OSError as error:
            log.debug("process %d cannot be looked at now: %s", self._pid, error)
        else:
            self._status = self._status or (_told(found) if found else None)


def _told(found: Any) -> ExitStatus:
    if found.si_code == os.CLD_EXITED:
        return ExitStatus(code=found.si_status)
    return ExitStatus(signal=found.si_status)


def _close_all(descriptors: tuple[int, ...]) -> None:
    for fd in descriptors:
        with contextlib.suppress(OSError):  # somebody closed it already
            os.close(fd)


class Leader:
    """Another backend's process in the hand of the one kill: what can be known of it, and no more.

    It is pinned only while it is a child of ours that nobody collected; it has a group only if it leads one.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid or 0
        row = procs.row(self.pid) if self.pid else None
        self.started = row.started if row else 0

    @property
    def pinned(self) -> bool:
        return self.pid > 1 and _is_ours(self.pid)

    def watch(self) -> int | None:
        return None if self.exit_status() else _asked(self._process.exit_handle)

    def exit_status(self) -> ExitStatus | None:
        if not self.pid:
            return ExitStatus(note="it has no process here")
        return _asked(self._process.exit_status) or self._seen()

    def _seen(self) -> ExitStatus | None:
        """Return how it ended by what the system says, where its backend says nothing."""
        row = procs.row(self.pid)
        if row is not None and row.started == self.started and not row.dead:
            return None
        with contextlib.suppress(ChildProcessError):  # no child of ours, or collected
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return _told(found) if found else None
        return ExitStatus(note="its backend does not say how it ended")

    def signal_group(self, signum: int) -> bool:
        row = procs.row(self.pid) if self.pinned else None
        if row is None or row.group != self.pid:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)
            return True
        return False

    def reap(self) -> ExitStatus | None:
        status = self.exit_status()
        if self.pinned:
            with contextlib.suppress(ChildProcessError):  # its backend collected it
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG)
        return status


def leader_of(process: Process) -> LocalProcess | Leader:
    """Return what the one kill needs to know of any backend's process."""
    return process if isinstance(process, LocalProcess) else Leader(process)


def _asked(question: Callable[[], Any]) -> Any:
    """Return what a backend's process answers, None if it raises: the system knows too."""
    try:
        return question()
    except Exception as error:  # a backend's own code may raise anything
        log.debug("a backend's process could not be asked: %s: %s", type(error).__name__, error)
        return None


def _is_ours(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
