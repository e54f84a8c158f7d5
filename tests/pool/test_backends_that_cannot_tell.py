"""A backend whose process cannot say how it ended: it is told by name, nobody spins, and the worker's row ends all the same."""

import os
import sys
from pathlib import Path

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.backends.local import LocalBackend
from comfy_env.hooks import hookimpl
from comfy_env.testing.audit import wait_until
from comfy_env.testing.scripted import Dies, ScriptedBackend
from comfy_env.values import ExitStatus
from tests.pools import pool_over

PLAN = EnvPlan(key="mute", backend="mute", interpreter=Path(sys.executable), root=Path(__file__).parents[1] / "code")
FEW = 300
"""Looks at a status in a few seconds; a spinning thread makes thousands."""


class Mute:
    """Another's process whose status, from a moment on, is what ``says`` does."""

    def __init__(self, process, says, handle=None):
        self._process, self._says, self._handle = process, says, handle
        self.looks = 0
        self.mute = False

    def __getattr__(self, name):
        return getattr(self._process, name)

    def exit_status(self):
        self.looks += 1
        return self._says(self) if self.mute else self._process.exit_status()

    def exit_handle(self):
        return self._handle(self) if self._handle else self._process.exit_handle()


def raises(process):
    raise ZeroDivisionError("no status today")


def nothing(process):
    return None


def dies():
    raise Dies(ExitStatus(code=5))


class MuteScripted(ScriptedBackend):
    def __init__(self, says, handle=None):
        super().__init__({"m:double": lambda n: 2 * n, "m:die": dies})
        self.says, self.handle, self.made = says, handle, []

    def _start(self, launch):
        self.made.append(Mute(super()._start(launch), self.says, self.handle))
        return self.made[-1]

    def _join(self, process, launch):
        return super()._join(process._process, launch)


class MuteLocal(LocalBackend):
    def __init__(self, says):
        self.says, self.made = says, []

    @hookimpl
    def comfy_env_spawn(self, launch):
        self.made.append(Mute(super().comfy_env_spawn(launch), self.says))
        return self.made[-1]


@pytest.fixture
def make_pool(settings):
    pools = []

    def make(backend):
        pools.append(pool_over(settings, backend, "mute"))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def row(pool):
    return pool.seats()[0].env.row.state.value


SAYINGS = pytest.mark.parametrize("says", [raises, nothing], ids=["raises", "says nothing"])


@SAYINGS
def test_an_idle_worker_that_ends_without_a_status_is_noticed_without_spinning(make_pool, says):
    backend = MuteScripted(says)
    pool = make_pool(backend)
    assert pool.call(PLAN, "m:double", 1) == 2
    backend.made[0].mute = True
    backend.made[0].end(ExitStatus(code=5))
    wait_until(lambda: row(pool) in ("cold", "gone"), 20)
    assert backend.made[0].looks < FEW
    assert [line for line in pool.story(PLAN) if "backend 'mute'" in line and "exit_status" in line]
    assert pool.call(PLAN, "m:double", 2) == 4
    assert pool.record(PLAN).generation == 2


@SAYINGS
def test_a_call_whose_worker_ends_without_a_status_fails_by_name(make_pool, says):
    backend = MuteScripted(says)
    pool = make_pool(backend)
    pool.call(PLAN, "m:double", 1)
    backend.made[0].mute = True
    with pytest.raises(errors.WorkerCrashed):
        pool.call(PLAN, "m:die")
    assert pool.call(PLAN, "m:double", 2) == 4
    assert backend.made[0].looks < FEW


HANDLES = {"raises": lambda process: 1 / 0, "text": lambda process: "seven", "closed": lambda process: 999_999}


@pytest.mark.parametrize("handle", HANDLES.values(), ids=HANDLES)
def test_an_exit_handle_that_cannot_be_watched_is_told_and_the_worker_serves(make_pool, handle):
    backend = MuteScripted(nothing, handle)
    pool = make_pool(backend)
    assert pool.call(PLAN, "m:double", 1) == 2
    wait_until(lambda: any("backend 'mute'" in line and "exit" in line for line in pool.story(PLAN)))
    backend.made[0].end(ExitStatus(code=5))
    wait_until(lambda: row(pool) in ("cold", "gone"), 20)
    assert any("status 5" in line for line in pool.story(PLAN))


@SAYINGS
def test_a_real_process_whose_backend_tells_no_status_leaves_no_row_and_nobody(make_pool, says):
    backend = MuteLocal(says)
    pool = make_pool(backend)
    pid = pool.call(PLAN, "jobs:pid")
    backend.made[0].mute = True
    with pytest.raises(errors.WorkerCrashed):
        pool.call(PLAN, "jobs:kill_self")
    assert pool.call(PLAN, "jobs:add", 1, 1) == 2
    assert pool.record(PLAN).generation == 2
    assert not os.path.exists(f"/proc/{pid}")
    assert backend.made[0].looks < FEW


@SAYINGS
def test_a_worker_that_is_killed_and_tells_no_status_leaves_closing(make_pool, says):
    backend = MuteLocal(says)
    pool = make_pool(backend)
    pid = pool.call(PLAN, "jobs:pid")
    backend.made[0].mute = True
    pool.kill(PLAN)
    wait_until(lambda: row(pool) in ("cold", "gone"), 20)
    assert not os.path.exists(f"/proc/{pid}")
    assert backend.made[0].looks < FEW


@SAYINGS
def test_a_worker_that_dies_while_joining_and_tells_no_status_fails_its_birth_by_name(make_pool, says):
    spawned = []

    class Dying(Mute):
        def __init__(self, process, says):
            super().__init__(process, says)
            self.mute = True
            spawned.append(self)

    class Stillborn(MuteLocal):
        @hookimpl
        def comfy_env_spawn(self, launch):
            process = LocalBackend.comfy_env_spawn(self, launch.with_interpreter("/bin/false"))
            return Dying(process, self.says)

    pool = make_pool(Stillborn(says))
    with pytest.raises((errors.DiedBeforeJoining, errors.BackendError, errors.TransportRefused)):
        pool.call(PLAN, "jobs:pid")
    assert spawned[0].looks < FEW
    wait_until(lambda: row(pool) in ("cold", "gone"), 20)
