"""The zygote's trial: a child that computes with several threads, before any worker is forked.

A library that started threads while it was imported, or took a lock, makes every forked child wait for ever. That shows
in this child, under a deadline, and not in a worker.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Optional

_PROVED = b"computed"


def why_not(prepare: Callable[[], None], seconds: float) -> str:
    """Fork a child that prepares itself as a worker does and computes; return what went wrong, '' for nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        _try(prepare, write)
    os.close(write)
    try:
        said = _hear(read, seconds)
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    if said == _PROVED:
        return ""
    if said is None:
        return f"a child forked from it computed nothing within {seconds:g} s"
    return f"a child forked from it failed: {said.decode(errors='replace') or _ended(status)}"


def _hear(read: int, seconds: float) -> Optional[bytes]:
    poll = select.poll()
    poll.register(read, select.POLLIN)
    return os.read(read, 2048) if poll.poll(seconds * 1000) else None


def _ended(status: int) -> str:
    return f"it ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"it exited with status {os.WEXITSTATUS(status)}"


def _try(prepare: Callable[[], None], write: int) -> None:
    """Compute, say how that went, and end; never returns."""
    try:
        prepare()
        compute()
        os.write(write, _PROVED)
    except BaseException as error:  # whatever a library raises is what the trial is for
        traceback.print_exc()
        os.write(write, f"{type(error).__name__}: {error}".encode()[:2048])
    finally:
        os._exit(0)


def compute() -> None:
    """Use threads, BLAS and a backward pass of what is imported."""
    thread = threading.Thread(target=threading.get_ident)
    thread.start()
    thread.join()
    numpy, torch, linalg = (sys.modules.get(name) for name in ("numpy", "torch", "scipy.linalg"))
    if numpy is not None:
        square = numpy.ones((384, 384))
        square @ square
    if numpy is not None and linalg is not None:
        linalg.solve(numpy.eye(256), numpy.ones((256, 256)))
    if torch is not None:
        square = torch.ones(256, 256).exp()   # just large enough for two threads
        square @ square
        leaf = torch.ones(2, requires_grad=True)
        (leaf * leaf).sum().backward()
