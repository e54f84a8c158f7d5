"""The one kill: end a worker's process and everything it started, then collect its status.

Members are known by three marks, none of which a stranger can have: the worker's group and session, whose numbers stay
its own as long as its dead leader is not collected; and the nonce in the environment, which finds those that left both.
A process outside the group is pinned with a pidfd and looked at again before it is signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from comfy_env.process import procs
from comfy_env.process.handle import leader_of
from comfy_env.process.patience import Patience
from comfy_env.process.pins import Pin
from comfy_env.process.waits import readable
from comfy_env.values import Killed, Process

_LOOK = 0.01    # seconds between two looks at a tree that is not empty yet
_CLEAN = 2      # looks in a row that must find nobody: a process in mid-exec shows no environment


def end(process: Process, *, nonce: str, deadline_seconds: float = 2.0) -> Killed:
    """End a worker's whole tree and collect its status; never raises for what the system refuses.

    A tree that is not empty at the deadline comes back with ``status`` None and a ``note`` naming who is left: that
    worker will not die. Safe to call twice, and from two threads.
    """
    return _End(process, nonce).run(Patience(deadline_seconds))


def end_carriers(nonce: str, *, deadline_seconds: float = 2.0) -> tuple[int, ...]:
    """End everybody who carries a worker's nonce, for a worker whose process nobody was told of; return whom."""
    ended: set[int] = set()
    clean, patience = 0, Patience(deadline_seconds)
    while clean < _CLEAN and patience.left():
        found = [row for row in procs.rows() if not row.dead and row.pid not in (1, os.getpid()) and procs.carries(row.pid, nonce)]
        for row in found:
            ended.add(row.pid)
            _strike_carrier(row.pid, nonce, patience)
        clean = 0 if found else clean + 1
        readable([], _LOOK)
    return tuple(sorted(ended))


def _strike_carrier(pid: int, nonce: str, patience: Patience) -> None:
    with Pin(pid) as pin:
        if procs.carries(pid, nonce):
            pin.send(signal.SIGKILL)
            patience.wait(lambda seconds: readable([pin.fd], seconds))
    with contextlib.suppress(ChildProcessError):  # not a child of ours, or collected by somebody else
        os.waitpid(pid, os.WNOHANG)


def stack(process: Process, seconds: float = 0.2, arrived: Callable[[], bool] = lambda: False) -> bool:
    """Ask a worker to write its Python stack to its stderr and wait until it ``arrived``, ended, or time is up.

    False where the process has no handler for the question; asking it would end it.
    """
    asked = _ask_for_stack(process)
    leader = leader_of(process)
    patience = Patience(seconds if asked else 0.0)
    while (left := patience.left()) and not arrived() and leader.exit_status() is None:
        readable([leader.watch()], min(left, 0.005))
    return asked


class _End:
    """One run of the kill. ``left`` are the members that were alive at the last look."""

    def __init__(self, process: Process, nonce: str) -> None:
        self.leader = leader_of(process)
        self.nonce = nonce
        self.ended: set[int] = set()
        self.left: list[procs.Row] = []
        self.trouble = ""

    def run(self, patience: Patience) -> Killed:
        clean, status = 0, None
        while clean < _CLEAN or status is None:
            try:
                clean = clean + 1 if self._round() else 0
                status = self.leader.reap() if clean >= _CLEAN else None
                watched = self.leader.watch()
            except OSError as error:  # no descriptor or memory to look with: the next round may have them
                clean, watched, self.trouble = 0, None, f"its tree could not be looked at: {error.strerror}"
            left = patience.left()
            if not clean and not left:
                return Killed(tuple(sorted(self.ended)), None, self._who_is_left())
            if not clean and readable([watched], min(_LOOK, left)) and self.leader.exit_status() is None:
                readable([], _LOOK)  # it says that it ended and not how: its word alone must not turn this into a spin
        return Killed(tuple(sorted(self.ended)), status, "")

    def _round(self) -> bool:
        """Signal everybody once; return whether nobody was there."""
        ran = self.leader.exit_status() is None
        if self.leader.signal_group(signal.SIGKILL) and ran:
            self.ended.add(self.leader.pid)
        self.left = self._strike()
        self.trouble = ""
        return not self.left and self.leader.exit_status() is not None

    def _strike(self) -> list[procs.Row]:
        """Signal every member outside the group too; return the members that were alive."""
        alive = []
        for row in procs.rows():
            if row.dead:
                self._collect_adopted(row)
            elif self._is_member(row):
                alive.append(row)
                self._strike_one(row)
        return alive

    def _strike_one(self, row: procs.Row) -> None:
        with Pin(row.pid) as pin:
            again = procs.row(row.pid)
            if again is not None and again.started == row.started and self._is_member(again):
                self.ended.add(row.pid)
                pin.send(signal.SIGKILL)

    def _is_member(self, row: procs.Row) -> bool:
        if row.pid in (1, os.getpid()) or row.started < self.leader.started:
            return False
        return self._in_session(row) or procs.carries(row.pid, self.nonce)

    def _in_session(self, row: procs.Row) -> bool:
        return self.leader.pid in (row.pid, row.group, row.session) and self.leader.pinned

    def _collect_adopted(self, row: procs.Row) -> None:
        """Collect a dead member that became our own child, as all orphans do where the host is PID 1."""
        if row.pid != self.leader.pid and row.parent == os.getpid() and (row.pid in self.ended or self._in_session(row)):
            with contextlib.suppress(ChildProcessError):  # collected by somebody else
                os.waitpid(row.pid, os.WNOHANG)

    def _who_is_left(self) -> str:
        rows = [f"{row.pid} (state {row.state})" for row in self.left]
        return self.trouble or f"still alive after SIGKILL: {', '.join(rows) or self.leader.pid}"


def _ask_for_stack(process: Process) -> bool:
    for pid in _who_may_answer(leader_of(process).pid):
        with Pin(pid) as pin:
            if procs.catches(pid, signal.SIGUSR1):
                return pin.send(signal.SIGUSR1)
    return False


def _who_may_answer(pid: int) -> list[int]:
    """Return the worker first, then its session: under a wrapper the worker is not the child."""
    if pid <= 1 or procs.catches(pid, signal.SIGUSR1):
        return [pid] if pid > 1 else []
    return sorted(row.pid for row in procs.rows() if row.session == pid)
