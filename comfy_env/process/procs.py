"""What processes there are, as the system tells it: rows, environments, start times, boot and namespace identity.

A row is a snapshot. It proves nothing about the process that has its number a moment later: pin a process with a pidfd
first, then look at its row again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

LINUX = sys.platform.startswith("linux")
GONE = (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess)
NONCE = "COMFY_ENV_NONCE"
HOST_NONCE = "COMFY_ENV_HOST_NONCE"
_SHOWN = 200   # characters of a program line
_EXITING = 4   # the kernel's PF_EXITING among a process's flags
_DOOMED = 4 | 0x200 | 0x400   # and PF_DUMPCORE, PF_SIGNALED


@dataclass(frozen=True)
class Row:
    """One process. ``started`` is its start time in clock ticks since boot (elsewhere than on Linux: in 1/100 s)."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    threads: int
    started: int

    @property
    def dead(self) -> bool:
        """Whether nothing of it runs any more; a zombie leader whose threads still run is not dead."""
        return self.state in "ZX" and self.threads <= 1


def row(pid: int) -> Row | None:
    """Return the row of a process, None if there is none or it is hidden from us."""
    found = None
    with contextlib.suppress(*GONE, PermissionError, psutil.AccessDenied):
        found = _linux_row(pid) if LINUX else _portable_row(pid)
    return found


def rows() -> Iterator[Row]:
    """Yield every process's row, the youngest numbers first: a process that forks and ends is met before it is gone."""
    for pid in sorted(pids(), reverse=True):
        found = row(pid)
        if found is not None:
            yield found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if LINUX else psutil.pids()


def environment(pid: int) -> bytes:
    """Return a process's environment as NUL-ended entries, empty where it is gone or not ours to read."""
    found = b""
    with contextlib.suppress(*GONE, PermissionError, psutil.AccessDenied, psutil.ZombieProcess):
        found = _linux_environment(pid) if LINUX else _portable_environment(pid)
    return found


def carries(pid: int, nonce: str) -> bool:
    """Return whether a process was started with a worker's nonce; only a whole entry counts."""
    return bool(nonce) and _entry(NONCE, nonce) in b"\0" + environment(pid)


def carries_both(pid: int, nonce: str, host_nonce: str) -> bool:
    """Return whether a process carries a worker's nonce and its host's."""
    entries = b"\0" + environment(pid)
    return _entry(NONCE, nonce) in entries and _entry(HOST_NONCE, host_nonce) in entries


def catches(pid: int, signum: int) -> bool:
    """Return whether a process has a handler for a signal; False where that cannot be known."""
    lines: list[str] = []
    with contextlib.suppress(OSError):  # gone, or a system without /proc
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (signum - 1) & 1)


def ending(pid: int) -> bool:
    """Return whether a process is on its way out: its memory is gone, its files may still be open. False where that is not told."""
    fields = _stat(pid)
    return len(fields) > 6 and bool(int(fields[6]) & _EXITING)


def doomed(pid: int) -> bool:
    """Return whether a process's end has begun and cannot be stopped, its memory still there perhaps. False where that is not told."""
    fields = _stat(pid)
    return len(fields) > 6 and (fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _DOOMED))


def wait_status(pid: int) -> int | None:
    """Return the wait status of a process that ended and was not collected (Linux), None if it is gone."""
    fields = _stat(pid)
    return int(fields[49]) if len(fields) > 49 and fields[0] in (b"Z", b"X") else None


def resident(pid: int) -> int:
    """Return the bytes of memory a process occupies, 0 where it is gone or hidden from us."""
    found = 0
    with contextlib.suppress(*GONE, PermissionError, psutil.AccessDenied, psutil.ZombieProcess):
        found = psutil.Process(pid).memory_info().rss
    return found


def command_line(pid: int) -> str:
    """Return a process's program line for people, '' where it is gone or not ours to read."""
    words: list[str] = []
    with contextlib.suppress(*GONE, PermissionError, psutil.AccessDenied, psutil.ZombieProcess):
        words = psutil.Process(pid).cmdline()
    return shlex.join(words)[:_SHOWN]


def untouchable(found: Row) -> bool:
    """Return whether a sweep must never end a process, whatever it carries: init, ourselves, our own group."""
    return found.pid <= 1 or found.pid == os.getpid() or found.group == os.getpgrp()


def boot_id() -> str:
    """Return what tells this boot of the machine from every other."""
    if LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"boot-{int(psutil.boot_time())}"


def pid_namespace() -> int:
    """Return the identity of the space our process numbers are in; 0 where there is only one."""
    return os.stat("/proc/self/ns/pid").st_ino if LINUX else 0


def _entry(name: str, value: str) -> bytes:
    return f"\0{name}={value}\0".encode()


def _linux_row(pid: int) -> Row:
    text = _read(f"/proc/{pid}/stat")
    fields = text[text.rindex(b")") + 2 :].split()
    return Row(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[0].decode(), int(fields[17]), int(fields[19]))


def _stat(pid: int) -> list[bytes]:
    """Return what Linux says of a process, from its state on; nothing where it is gone or not told."""
    text = b""
    with contextlib.suppress(*GONE, PermissionError):
        text = _read(f"/proc/{pid}/stat") if LINUX else b""
    return text[text.rfind(b")") + 2 :].split()


def _linux_environment(pid: int) -> bytes:
    data = _read(f"/proc/{pid}/environ")
    return data if data.endswith(b"\0") else data + b"\0"


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _portable_row(pid: int) -> Row:
    process = psutil.Process(pid)
    with process.oneshot():
        zombie = process.status() == psutil.STATUS_ZOMBIE
        threads = 0 if zombie else process.num_threads()
        started = int(process.create_time() * 100)
        return Row(pid, process.ppid(), os.getpgid(pid), os.getsid(pid), "Z" if zombie else "R", threads, started)


def _portable_environment(pid: int) -> bytes:
    entries = psutil.Process(pid).environ()
    return b"".join(f"{name}={value}\0".encode(errors="surrogateescape") for name, value in entries.items())
