"""What a test may leave behind: nothing. Compares threads, descriptors and child processes before and after."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(question: Callable[[], object], seconds: float = 10.0, what: str = "") -> object:
    """Poll until the answer is true and return it; raises TimeoutError at the deadline."""
    limit = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {seconds:g} s: {what or question}")
        time.sleep(0.005)
    return answer


class Audit:
    """Remembers what there is; `left` tells what is there beyond that. Complete where there is a /proc."""

    def __init__(self) -> None:
        self._before = _present()

    def left(self) -> tuple[str, ...]:
        """Return what is new since this audit began, for people."""
        return tuple(text for key, text in _present().items() if key not in self._before)

    def settle(self, seconds: float = 3.0) -> tuple[str, ...]:
        """Give what winds down by itself some time, then return what is left."""
        limit = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < limit:
            gc.collect()
            time.sleep(0.01)
        return left


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return _signalled(pid) if not os.path.isdir("/proc/self") else False
    except ProcessLookupError:
        return False
    return state not in "ZX"


def _signalled(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _present() -> dict[tuple[str, object], str]:
    threads: dict[tuple[str, object], str] = {("thread", id(thread)): f"thread {thread.name}" for thread in threading.enumerate()}
    return {**threads, **_descriptors(), **_children()}


def _descriptors() -> dict[tuple[str, object], str]:
    found: dict[tuple[str, object], str] = {}
    with contextlib.suppress(FileNotFoundError):  # no /proc on this platform
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                target = os.readlink(f"/proc/self/fd/{name}")
                if not target.startswith(("/dev/", "/proc/")):
                    found[("fd", (name, target))] = f"descriptor {name} -> {target}"
    return found


def _children() -> dict[tuple[str, object], str]:
    found: dict[tuple[str, object], str] = {}
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            found.update({("process", int(pid)): f"child process {pid}" for pid in file.read_text().split()})
    return found
