"""How much memory may still be taken before the kernel ends a process instead of answering it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

from .faults import EncodeFault, NoRoom

RESERVE = 64 * 1024 * 1024
"""Left alone: other threads and the system want some too."""

_FRESH = 1.0        # s that a look is believed
_SMALL = 4 << 20    # whoever takes more than this pays for a look of his own
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_MOUNTS = ("sys/fs/cgroup", "sys/fs/cgroup/memory", "sys/fs/cgroup/unified")

_SHORT = (MemoryError, RuntimeError)   # what numpy, and what torch, says when it gets no memory


def copied(what: Any, size: int, copy: Callable[[], Any]) -> Any:
    """Return a copy of so many bytes that is made to send something; raises EncodeFault about it where there is no room for one."""
    try:
        if size > _SMALL:
            Headroom().take(size)
        return copy()
    except NoRoom as error:
        raise EncodeFault(what, f"must be copied to be sent, which {error.why}", error.hint) from error
    except _SHORT as error:
        raise EncodeFault(what, f"must be copied to be sent, which failed ({error})", "send less at once") from error


class Headroom:
    """What is left of this system's memory and of each control group this process is in. ``root`` is where files are looked for."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._left = 0
        self._what = ""
        self._until = 0.0

    def take(self, size: int) -> None:
        """Count so many bytes as taken from now on; raises NoRoom, and counts nothing, if they are not there."""
        if size > _SMALL or self._left - size < RESERVE or time.monotonic() > self._until:
            self._look()
        if self._left - size < RESERVE:
            raise NoRoom(f"{size} bytes of memory are wanted and {max(0, self._left)} are left ({self._what}); {RESERVE} stay in reserve")
        self._left -= size

    def _look(self) -> None:
        found = [*self._system(), *self._groups()]
        self._left, self._what = min(found) if found else (1 << 62, "unlimited")
        self._until = time.monotonic() + _FRESH

    def _system(self) -> Iterator[tuple[int, str]]:
        for line in _lines(os.path.join(self._root, "proc/meminfo")):
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024, "MemAvailable"

    def _groups(self) -> Iterator[tuple[int, str]]:
        for line in _lines(os.path.join(self._root, "proc/self/cgroup")):
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                for mount in _MOUNTS:
                    yield from self._limits(os.path.join(self._root, mount), path.strip("/"))

    def _limits(self, mount: str, path: str) -> Iterator[tuple[int, str]]:
        """Yield what a group and those above it have left."""
        parts = path.split("/") if path else []
        for depth in range(len(parts), -1, -1):
            yield from _left_in(os.path.join(mount, *parts[:depth]))


def _left_in(folder: str) -> Iterator[tuple[int, str]]:
    for limit_name, use_name in _FILES:
        limit, use = _number(os.path.join(folder, limit_name)), _number(os.path.join(folder, use_name))
        if limit is not None and use is not None and limit < 1 << 60:
            yield limit - use + _reclaimable(folder), f"the memory limit of {folder}"


def _reclaimable(folder: str) -> int:
    """Return how much of a group's use is cached files that the kernel drops when it must."""
    stat = dict(line.split(None, 1) for line in _lines(os.path.join(folder, "memory.stat")))
    return int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))


def _number(path: str) -> Optional[int]:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):   # not every system has every file
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read().splitlines()
    return []
