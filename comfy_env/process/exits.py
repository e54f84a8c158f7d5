"""A descriptor that becomes readable when a child ends: a pidfd, or a pipe that a waiting thread closes."""

from __future__ import annotations

import contextlib
import errno
import os
import threading

_NO_PIDFD = (errno.ENOSYS, errno.EPERM, errno.EINVAL)  # an old kernel, or a sandbox that filters the call


def open_exit_handle(pid: int) -> int:
    """Return a descriptor that becomes readable when our child ends; it never reaps."""
    if not hasattr(os, "pidfd_open"):
        return _waiting_thread(pid)
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return _readable_at_once()
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            raise
        return _waiting_thread(pid)


def _readable_at_once() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def _waiting_thread(pid: int) -> int:
    read, write = os.pipe()
    threading.Thread(target=_close_at_exit, args=(pid, write), name=f"exit of {pid}", daemon=True).start()
    return read


def _close_at_exit(pid: int, write: int) -> None:
    with contextlib.suppress(ChildProcessError):  # somebody else reaped it: it ended all the same
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.close(write)
