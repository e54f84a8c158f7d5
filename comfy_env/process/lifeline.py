"""The lifeline: a pipe whose only write end is in the host. When the host dies, however it dies, the kernel closes that
end, and what hangs on the read end is ended.

On Linux the kernel itself sends SIGKILL to the worker's whole group (`arm`): it works on a stopped worker, under a
wrapper, and while native code holds the GIL. Where it does not (`works` probes it once), a small shell waits on the
pipe and kills the group (`lifeline_shell`).

Nothing may ever be written into a lifeline: the kernel takes data for the signal too.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from comfy_env.process import procs
from comfy_env.process.exits import open_exit_handle
from comfy_env.process.patience import Patience
from comfy_env.process.waits import readable

log = logging.getLogger(__name__)


class HasLifeline(Protocol):
    @property
    def lifeline_write(self) -> int: ...


Endpoint = TypeVar("Endpoint", bound=HasLifeline)

_F_SETSIG = getattr(fcntl, "F_SETSIG", 10)
_ENDS: dict[int, tuple[int, int]] = {}   # write end -> (device, inode) of its pipe
_KEEPING = threading.Lock()              # workers are born beside each other, and a child is not forked in between


def arm(fd: int, pgid: int) -> None:
    """Have the kernel end a group when a lifeline's last write end closes. ``fd`` is its read end, in any process.

    The owner belongs to the open file, not to the descriptor: the host arms it and closes its copy. One pipe per group.
    Raises OSError (ProcessLookupError: no such group).
    """
    if pgid <= 1:
        raise ProcessLookupError(f"{pgid} is not a worker's group")
    fcntl.fcntl(fd, fcntl.F_SETOWN, -pgid)
    fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


@functools.cache
def works() -> bool:
    """Return whether this kernel ends a group by its lifeline: tried once, on a process that does nothing."""
    return procs.LINUX and _probe()


def keep_from_forks(write_end: int) -> None:
    """See to it that a forked child of this process does not keep a lifeline open."""
    with _KEEPING:
        _keep(write_end)


def opened(make: Callable[[], Endpoint]) -> Endpoint:
    """Make what has a lifeline in it, kept from forks from the first moment on: none comes between its making and its keeping."""
    with _KEEPING:
        made = make()
        _keep(made.lifeline_write)
    return made


def _keep(write_end: int) -> None:
    for fd, identity in list(_ENDS.items()):
        if _identity(fd) != identity:
            del _ENDS[fd]
    found = _identity(write_end)
    if found is not None:
        _ENDS[write_end] = found


def _in_child() -> None:
    for fd, identity in list(_ENDS.items()):
        if _identity(fd) == identity:  # its number may belong to something else by now
            os.close(fd)
    _ENDS.clear()
    _KEEPING.release()


os.register_at_fork(before=_KEEPING.acquire, after_in_parent=_KEEPING.release, after_in_child=_in_child)


def _identity(fd: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.fstat(fd)
        return found.st_dev, found.st_ino
    return None


def _probe() -> bool:
    read, write = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, read)
        child = stack.enter_context(_idler())
        stack.callback(child.kill)
        gone = open_exit_handle(child.pid)
        stack.callback(os.close, gone)
        try:
            arm(read, child.pid)
        except OSError as error:
            log.info("this kernel does not arm lifelines: %s", error)
            return False
        finally:
            os.close(write)
        return Patience(1.0).wait(lambda seconds: readable([gone], seconds))


def _idler() -> subprocess.Popen[bytes]:
    """Start a process that does nothing, and ends by itself when this one is gone in the middle of the probe."""
    cat = shutil.which("cat", path=os.defpath)
    program = [cat] if cat else [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    return subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True)
