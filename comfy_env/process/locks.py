"""Kernel record locks as proof of life: held by one process, dropped at its death however it dies, right across
PID namespaces.

Such a lock vanishes when its process closes *any* descriptor of the file, so this process never opens a path again
that one of its own `HeldLock`s holds: `query` and `take` refuse to. Two pools of one process may be opened at once, so a
look at who holds a path and what is done about it are one step.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from comfy_env.errors import ComfyEnvError
from comfy_env.process.files import open_regular

_OURS: dict[str, int] = {}   # path -> the process that holds it; a forked child holds nothing
_STEP = threading.Lock()     # over the table and the descriptors it speaks of; a child is not forked in between
os.register_at_fork(before=_STEP.acquire, after_in_parent=_STEP.release, after_in_child=_STEP.release)

# struct flock of 64-bit systems: Linux puts the type first, the BSDs and macOS put it last
_LAYOUT, _TYPE, _PID = ("@hhqqi4x", 0, 4) if sys.platform.startswith("linux") else ("@qqihh", 3, 2)


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. ``pid`` is None where nobody does, 0 or less where it is somebody we cannot name."""

    pid: int | None

    @property
    def free(self) -> bool:
        return self.pid is None

    @property
    def named(self) -> bool:
        return self.pid is not None and self.pid > 0


class HeldLock:
    """A lock this process holds until `release`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._pid = os.getpid()
        _OURS[str(path)] = self._pid

    def moved(self, path: Path) -> None:
        """Rename the locked file; the lock stays."""
        with _STEP:
            os.rename(self.path, path)
            _OURS[str(path)] = _OURS.pop(str(self.path))
            self.path = path

    def release(self) -> None:
        """Let go; idempotent, and nothing in a forked child, which holds nothing."""
        if os.getpid() != self._pid:
            return
        with _STEP:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                _OURS.pop(str(self.path), None)
                os.close(fd)


def ours(path: Path) -> bool:
    """Return whether this very process holds the lock on a path."""
    return _OURS.get(str(path)) == os.getpid()


def take(path: Path, *, create: bool = False) -> HeldLock | None:
    """Return the lock on a path, None where another process holds it. Raises FileNotFoundError."""
    with _STEP, contextlib.ExitStack() as undo:
        _must_not_be_ours(path)
        fd = _create(path) if create else open_regular(path, os.O_RDWR)
        undo.callback(os.close, fd)
        if create:
            os.fchmod(fd, 0o600)  # whatever the umask says
        with contextlib.suppress(BlockingIOError, PermissionError):  # the two ways a system says "held"
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            undo.pop_all()
            return HeldLock(path, fd)
    return None


def _create(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL, 0o600)


def query(path: Path) -> Holder:
    """Return who holds the lock on a path. Raises FileNotFoundError, OSError where it is no regular file."""
    with _STEP:
        _must_not_be_ours(path)
        fd = open_regular(path, os.O_RDWR)
        try:
            return _ask(fd)
        finally:
            os.close(fd)


def _ask(fd: int) -> Holder:
    values = [0] * 5
    values[_TYPE] = fcntl.F_WRLCK
    answer = struct.unpack(_LAYOUT, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_LAYOUT, *values)))
    return Holder(None if answer[_TYPE] == fcntl.F_UNLCK else answer[_PID])


def _must_not_be_ours(path: Path) -> None:
    if ours(path):
        raise ComfyEnvError(f"{path} is locked by this process; opening it again would drop the lock")
