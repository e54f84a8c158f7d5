"""One lock per environment, held by the kernel: it ends with its holder, however that ends, and says who that is."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_SECONDS = 0.1
REMIND_SECONDS = 2.0


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as far as the holder had time to say."""

    pid: int = 0
    machine: str = ""
    doing: str = ""
    since: str = ""

    def __str__(self) -> str:
        who = f"process {self.pid} on {self.machine}" if self.pid else "another process"
        return f"{who} ({self.doing} since {self.since})" if self.doing else who


@contextmanager
def held(file: Path, doing: str, waiting: Callable[[Holder], None]) -> Iterator[None]:
    """Hold the lock for the block; ``waiting`` hears who has it every 2 s and may raise to give up."""
    fd = _acquire(file, waiting)
    try:
        _sign(fd, doing)
        yield
    finally:
        os.close(fd)


def discard(file: Path) -> None:
    """Remove the lock's file; only its holder may."""
    file.unlink(missing_ok=True)


def holder(file: Path) -> Holder | None:
    """Return who holds the lock now, None when it is free."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH) else _read(fd)
    finally:
        os.close(fd)


def _acquire(file: Path, waiting: Callable[[Holder], None]) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    reminded = float("-inf")
    while True:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if _try(fd, fcntl.LOCK_EX) and _is(fd, file):
                return os.dup(fd)
            if time.monotonic() - reminded >= REMIND_SECONDS:
                reminded = time.monotonic()
                waiting(_read(fd))
        finally:
            os.close(fd)
        time.sleep(POLL_SECONDS)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(fd: int, file: Path) -> bool:
    """Return whether the descriptor is still the file of that name: a remove may have discarded it meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(file))
    except FileNotFoundError:
        return False


def _sign(fd: int, doing: str) -> None:
    me = Holder(os.getpid(), socket.gethostname(), doing, time.strftime("%Y-%m-%d %H:%M:%S"))
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(asdict(me)).encode(), 0)


def _read(fd: int) -> Holder:
    try:
        return Holder(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return Holder()   # taken a moment ago and not signed yet
