"""Where a crash is told: a pipe the host waits on, so that it hears of a fault before the process has given back its memory."""

from __future__ import annotations

import contextlib
import faulthandler
import os
from typing import Optional

_STDERR = 2


def tell_of_crashes(pipe: Optional[int]) -> None:
    """Have the Python stack of a fatal signal written into a pipe; to stderr where there is none, or it was not inherited."""
    where, known = _STDERR, None
    if pipe is not None:
        with contextlib.suppress(OSError):   # a launcher that closes what it does not know
            os.set_inheritable(pipe, False)
            where, known = pipe, _what(pipe)
    faulthandler.enable(file=where)
    if known is not None:
        os.register_at_fork(after_in_child=lambda: _leave(where, known))


def _leave(pipe: int, known: object) -> None:
    """Tell of this forked child's crashes on its stderr: they are not the worker's."""
    if faulthandler.is_enabled():
        faulthandler.enable(file=_STDERR)
    if _what(pipe) == known:
        os.close(pipe)


def _what(descriptor: int) -> object:
    """Return what a descriptor is open on, None for a closed one: code of a pack may have closed it and got its number anew."""
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    return None
