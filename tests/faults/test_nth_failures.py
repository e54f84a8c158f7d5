"""F22: each system call of a birth, a call and a kill fails once: the first, then the second, until none is left."""

from __future__ import annotations

import errno
import fcntl
import gc
import itertools
import mmap
import os
import random
import select
import socket
import subprocess
from types import FrameType
from typing import Any

import pytest

from comfy_env import ComfyEnvError
from comfy_env.process import lifeline
from tests.faults.ward import Ward, zombies
from tests.process.nth import Nth

CODES = (errno.EMFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.ENOSPC, errno.EPIPE)
CALLS: dict[str, tuple[Any, str]] = {
    f"{place.__name__.rpartition('.')[2]}.{name}": (place, name) for place, names in (
        (os, "pipe open write read rename mkdir chmod fchmod listdir pidfd_open set_blocking waitid killpg fstat memfd_create ftruncate"),
        (fcntl, "fcntl"), (subprocess, "_fork_exec"), (select, "poll"), (mmap, "mmap"),
        (socket, "socketpair"), (socket.socket, "sendmsg recvmsg_into"),
    ) for name in names.split() if hasattr(place, name)
}


def is_our_hosts(caller: FrameType) -> bool:
    """Tell whether this project's host code makes a call itself."""
    outer = caller.f_back.f_back if caller.f_back else None
    near = [frame.f_code.co_filename for frame in (caller, caller.f_back, outer) if frame]   # pathlib and shutil lie between
    return any("/comfy_env/" in name for name in near) or near[0].endswith("subprocess.py")


def cycle(ward: Ward, plan: Any, number: int) -> list[ComfyEnvError]:
    """Have a birth, two calls and a kill; return what they failed by. Anything but a named error fails the test."""
    told: list[ComfyEnvError] = []
    for ask in (lambda: ward.call(plan, "echo", number), lambda: ward.call(plan, "blob", 300_000), lambda: ward.pool.kill(plan)):
        try:
            ask()
        except ComfyEnvError as error:
            told.append(error)
    return told


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.row("F22")
@pytest.mark.parametrize("codes", [1, pytest.param(len(CODES), marks=[pytest.mark.long, pytest.mark.deadline(1800)])], ids=["one", "all"])
@pytest.mark.parametrize("name", CALLS)
def test_any_system_call_may_fail_once_without_a_hang_a_leak_or_a_stranger_error(make_ward, fired, eventually, name, codes):
    lifeline.works()
    ward = make_ward(kill=3.0, birth=8.0, spawn=8.0, verify=8.0)
    plan, nth = ward.plan(), Nth(*CALLS[name], counts=is_our_hosts)
    assert cycle(ward, plan, 0) == []
    eventually(lambda: ward.pool.record(plan) is None, what="the first life is over")
    before = descriptors()
    code = itertools.cycle(CODES)
    for number in numbers(codes, nth, ward, plan):
        for _ in range(codes):
            with nth.armed(number, next(code)), fired.timed():
                told = [str(error) for error in cycle(ward, plan, number)]
            if not nth.fired:
                break
            fired()
            assert settled(ward, plan, number), (name, number, told, ward.pool.story(plan))
    gc.collect()
    eventually(lambda: descriptors() <= before and not (zombies() or ward.alive() or ward.litter()),
               what=f"everything was given back: {descriptors() - before, zombies(), ward.alive(), ward.litter()}")


def numbers(codes: int, nth: Nth, ward: Ward, plan: Any) -> list[int]:
    """Return which calls fail: every one in the long version, in the ordinary one the first and another one."""
    with nth.armed(0, 0):
        cycle(ward, plan, 0)
    every = list(range(1, nth.calls + 1))
    if codes > 1:
        return every
    return sorted({*every[:1], *random.Random(nth.name).sample(every, min(1, len(every)))})


def settled(ward: Ward, plan: Any, number: int) -> bool:
    """Tell whether the next call is served: a fault that is over costs one call at most."""
    for _ in range(3):
        try:
            return ward.call(plan, "echo", -number) == -number and ward.pool.kill(plan)
        except ComfyEnvError as error:
            if type(error).__name__ not in ("Wedged", "WorkerCrashed", "DiedBeforeJoining", "SpawnFailed"):
                return False
            ward.pool.kill(plan)
    return False
