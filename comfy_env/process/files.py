"""Opening what lies in a run folder: regular files only, for opening a pipe would wait for its other end for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path, flags: int) -> int:
    """Return a descriptor of a regular file that is there; anything else, a link too, raises OSError and is not opened."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def read_regular(path: Path) -> bytes:
    """Return what a regular file holds; see `open_regular`."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as stream:
        return stream.read()
