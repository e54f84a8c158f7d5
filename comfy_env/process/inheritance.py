"""What a process gets from the host that starts it, besides what its launch names: a forked worker must get the same.

Its zygote was started earlier, and a host may have changed since. The zygote is made like the host of now before it forks;
what only a process itself can set is told to the child. A zygote with other rights than the host has now is of no use.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RIGHTS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")


def told() -> dict[str, Any]:
    """Return what a process that this thread starts has of it and only that process itself can take on."""
    status = _status()
    ignored = int(status["SigIgn"], 16)
    return {
        "umask": int(status["Umask"], 8),
        "ignored": [int(number) for number in signal.valid_signals() if ignored >> (number - 1) & 1],
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    }


def rights() -> tuple[str, ...]:
    """Return who this thread is to the system, and in which control groups: what no other process can be given."""
    status = _status()
    return Path("/proc/thread-self/cgroup").read_text(), *(status.get(name, "") for name in _RIGHTS)


def give(pid: int) -> None:
    """Give a process of one thread this thread's limits, priority and processors; raises OSError, ValueError where that is refused."""
    for get, put in _ATTRIBUTES:
        mine = get(0)
        if get(pid) != mine:
            put(pid, mine)


def _status() -> dict[str, str]:
    lines = Path("/proc/thread-self/status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _limits(pid: int) -> dict[int, tuple[int, int]]:
    resource: Any = importlib.import_module("resource")   # not every system has it
    return {number: resource.prlimit(pid, number) for number in {getattr(resource, name) for name in dir(resource) if "RLIMIT_" in name}}


def _put_limits(pid: int, limits: dict[int, tuple[int, int]]) -> None:
    resource: Any = importlib.import_module("resource")
    for number, pair in limits.items():
        resource.prlimit(pid, number, pair)


def _policy(pid: int) -> tuple[int, int]:
    return os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority


def _put_policy(pid: int, policy: tuple[int, int]) -> None:
    os.sched_setscheduler(pid, policy[0], os.sched_param(policy[1]))


def _score(pid: int) -> str:
    """Return how soon the kernel ends a process where memory runs out."""
    return _score_file(pid).read_text()


def _score_file(pid: int) -> Path:
    return Path(f"/proc/{pid or 'self'}/oom_score_adj")


_ATTRIBUTES: tuple[tuple[Callable[[int], Any], Callable[[int, Any], Any]], ...] = (
    (_limits, _put_limits),
    (lambda pid: os.getpriority(os.PRIO_PROCESS, pid), lambda pid, nice: os.setpriority(os.PRIO_PROCESS, pid, nice)),
    (lambda pid: os.sched_getaffinity(pid), lambda pid, processors: os.sched_setaffinity(pid, processors)),
    (_policy, _put_policy),
    (_score, lambda pid, score: _score_file(pid).write_text(score)),
)
