"""Segments of shared memory: made, sealed, mapped. They travel as descriptors, so no name of theirs ever stays behind."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import mmap
import os
import secrets
import sys
from typing import Any, Optional

SMALLEST = 64 * 1024
"""A block's smallest size; a multiple of every page size, so that two blocks never share a page."""

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_NO_RESERVE = 0x4000 if sys.platform.startswith("linux") else 0
_ADD_SEALS, _GET_SEALS = 1033, 1034
_SEAL, _SHRINK, _GROW = 1, 2, 4
_CLOSE_ON_EXEC, _ALLOW_SEALING = 1, 2
_POPULATE_WRITE = 23
_UNTOLD = (AttributeError, OSError)


def create(size: int, label: str = "") -> int:
    """Return a descriptor of fresh zeroed memory that cannot shrink; raises OSError.

    It takes room only where it is written to. Where the system knows no nameless memory it has a name for a moment,
    which begins with the label, and cannot be sealed.
    """
    fd = nameless()
    fd = named(label) if fd is None else fd
    try:
        os.ftruncate(fd, size)
        with contextlib.suppress(OSError):   # a named one takes no seals; the receiver looks for them
            fcntl.fcntl(fd, _ADD_SEALS, _SEAL | _SHRINK | _GROW)
    except BaseException:
        os.close(fd)
        raise
    return fd


def nameless() -> Optional[int]:
    """Return a descriptor of nameless memory, None where there is no such thing."""
    make: Any = getattr(os, "memfd_create", None)
    with contextlib.suppress(*_UNTOLD):   # no such call in this system, or not allowed
        if make is not None:
            return make("comfy_env", _CLOSE_ON_EXEC | _ALLOW_SEALING)
        fd = ctypes.CDLL(None).memfd_create(b"comfy_env", _CLOSE_ON_EXEC | _ALLOW_SEALING)   # a Python built for an older system
        return None if fd < 0 else fd
    return None


def named(label: str) -> int:
    """Return a descriptor of memory whose name is gone already."""
    posix: Any = importlib.import_module("_posixshmem")
    name = f"/cenv-{label[:12]}-{secrets.token_hex(4)}"
    fd = posix.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    posix.shm_unlink(name)
    os.set_inheritable(fd, False)
    return fd


def is_sealed(fd: int) -> bool:
    """Tell whether nobody can take memory away under a reader's eyes, who would die of it."""
    with contextlib.suppress(OSError):   # it takes no seals
        return bool(fcntl.fcntl(fd, _GET_SEALS) & _SHRINK)
    return False


def for_readers(fd: int) -> int:
    """Return a descriptor of the same memory through which nobody can write, where the system has such a thing."""
    with contextlib.suppress(OSError):   # no /proc: the receiver maps it privately all the same
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    return os.dup(fd)


def map_shared(fd: int, size: int) -> mmap.mmap:
    """Map memory so that both ends see what is written; raises OSError, ValueError."""
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=_READ_WRITE)


def map_private(fd: int, size: int, offset: int = 0) -> mmap.mmap:
    """Map memory so that what is written here stays here; raises OSError, ValueError."""
    return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=_READ_WRITE, offset=offset)


def address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))


def populate(memory: mmap.mmap, fd: int, start: int, size: int) -> None:
    """Have the pages of a range made now; raises OSError where a write into them would end the process instead."""
    try:
        memory.madvise(_POPULATE_WRITE, start, size)
    except OSError:   # an older kernel, or truly no room: this one tells which
        os.posix_fallocate(fd, start, size)
