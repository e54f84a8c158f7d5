"""What a child of the zygote does to become a worker like any other: marks, session, descriptors, signals, random streams."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import threads

NONCE = b"COMFY_ENV_NONCE="
_KEPT = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}   # Python itself ignores the last two when it starts
_STAT_ENV_START = 49   # fields of /proc/PID/stat, counted from 0


def mark(old: str, new: str) -> None:
    """Let this process carry its own nonce in place of its zygote's, where the system shows its first environment.

    What a worker started is known by that mark. The environment block is this process's own copy from the fork on.
    """
    if len(old) != len(new):
        raise ValueError("the nonces differ in length")
    with open("/proc/self/stat", "rb") as stat:
        text = stat.read()
    fields = text[text.rindex(b")") + 2:].split()
    start = int(fields[_STAT_ENV_START - 2])
    with open("/proc/self/environ", "rb") as shown:
        place = (b"\0" + shown.read()).index(b"\0" + NONCE + old.encode() + b"\0")
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start + place + len(NONCE))
        memory.write(new.encode())


def carries(nonce: str) -> bool:
    """Tell whether the system shows this process with a nonce."""
    with open("/proc/self/environ", "rb") as shown:
        return b"\0" + NONCE + nonce.encode() + b"\0" in b"\0" + shown.read()


def keep_only(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Leave these descriptors open under these numbers, and no others."""
    above = max([*descriptors, *numbers, 2]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in descriptors]
    for fd in open_descriptors():
        if fd not in moved:
            _close(fd)
    for fd, number in zip(moved, numbers):   # noqa: B905 - Python 3.9
        os.dup2(fd, number, inheritable=number <= 2)
        os.close(fd)


def open_descriptors() -> dict[int, str]:
    """Return this process's descriptors and what each is open on."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            found.pop(int(name), None)   # the listing's own
    return found


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError as error:
        sys.stderr.write(f"comfy_env worker: descriptor {fd} of the zygote cannot be closed: {error}\n")


def freshen(setters: threads.Setters, variables: Mapping[str, str]) -> None:
    """Give a child what a process of its own would have: signals, garbage collection, threads to compute with, randomness."""
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    setters.restore(variables)
    reseed(sys.modules)


def take_on(told: Mapping[str, Any]) -> None:
    """Have what a process that the host starts now would have from it; a handler that a library has set stays."""
    os.umask(told["umask"])
    for number in signal.valid_signals() - _KEPT:
        now, ignored = signal.getsignal(number), number in told["ignored"]
        if ignored and now in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, signal.SIG_IGN)
        elif not ignored and now is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, told["blocked"])


def reseed(modules: Mapping[str, Any]) -> None:
    """Draw new seeds: a forked random stream repeats that of every sibling."""
    random.seed()
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "torch" in modules:
        modules["torch"].default_generator.seed()
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
