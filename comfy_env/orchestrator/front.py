"""Stays in the terminal when the first process of a line has handed over; the standard library only.

A shell takes the terminal back when the process that it started ends, and Ctrl-C would then reach nobody. So that process
becomes this waiter, with the same number: it holds the terminal and one pipe, leaves Ctrl-C to the generation that
serves (which is in its process group), passes TERM and HUP on, and ends with the last generation's status.

Run from its own text (`python -c`), so that no file has to be there when it is needed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
LOST = 1
PATIENCE = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Front:
    """Listens to the line of generations on a pipe that closes when the last of them ends."""

    def __init__(self, lineage: int, pid: int) -> None:
        self.lineage = lineage
        self.pid = pid  # who serves
        self.told: int | None = None  # the status a generation said it ends with
        self.seen: dict[int, int] = {}  # pid -> status, of those we collected
        self.rest = b""

    def run(self) -> int:
        adopt_orphans()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for signum in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self.pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)   # blocked since before this program was loaded: none is lost
        while self.listen():
            self.collect()
        until = time.monotonic() + PATIENCE   # the pipe closes a moment before its last holder can be collected
        while self.collect() and self.pid not in self.seen and time.monotonic() < until:
            time.sleep(0.005)
        return self.status()

    def listen(self) -> bool:
        """Wait for a word; False when nobody is left to say one."""
        if not select.select([self.lineage], [], [], 1.0)[0]:
            return True
        text = os.read(self.lineage, 4096)
        *lines, self.rest = (self.rest + text).split(b"\n")
        for line in lines:
            self.hear(json.loads(line))
        return bool(text)

    def hear(self, word: dict) -> None:
        if word["pid"] != self.pid:
            self.pid, self.told = word["pid"], None
        if "status" in word:
            self.told = word["status"]

    def pass_on(self, signum: int, frame: object) -> None:
        try:
            if self.pid not in self.seen:   # its number may be somebody else's by now
                os.kill(self.pid, signum)
        except ProcessLookupError:
            self.told = 128 + signum if self.told is None else self.told

    def collect(self) -> bool:
        """Collect what ended: our successor, and its successors, which the system gives to us. False: we have no child left."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self.seen[found[0]] = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            return False
        return True

    def status(self) -> int:
        code = self.seen.get(self.pid, LOST if self.told is None else self.told)
        return code if code >= 0 else 128 - code


def adopt_orphans() -> bool:
    """Ask the system to make us the parent of our successor's successors; False where it cannot (they tell their status)."""
    if not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


if __name__ == "__main__":
    sys.exit(Front(int(sys.argv[1]), int(sys.argv[2])).run())
