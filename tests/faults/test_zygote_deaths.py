"""The host dies while a zygote and a worker forked from it live; the zygote dies while it forks; nobody is left and no call is lost."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from comfy_env import EnvPlan
from comfy_env.backends.venv import VenvBackend
from comfy_env.errors import CallFailed
from comfy_env.hooks import Registry
from comfy_env.pool import WorkerPool
from comfy_env.process import procs
from comfy_env.process import zygote as zygote_process
from comfy_env.settings import Settings
from tests.faults.hosts import BORN, CODE, PACK, PROMISED, Host, hosts_of, sweep_finds, twins
from tests.made_envs import lay_out, make_venv
from tests.process.kit import running

pytestmark = pytest.mark.skipif(not zygote_process.possible(), reason="this system lets no host have workers forked")

HOST = BORN + """
from comfy_env import EnvPlan
mode = arguments[0]

class Tell(Born):
    @hookimpl
    def comfy_env_launch(self, launch):
        if mode == "at once" and launch.generation == 2:
            tell(host_nonce=launch.host_nonce, family=[], zygote=pool.seats()[0].keeper.pid)

spy = Tell()
pool = make_pool(wrappers=[spy], envs_folder=folder / "envs")
plan = EnvPlan("a", root=CODE, import_roots=(PACK,))
pool.call(plan, "jobs:pid")
zygote = pool.seats()[0].keeper.pid
if mode == "at once":
    pool.kill(plan)
    pool.call(plan, "jobs:pid")
family = held(pool, plan) if mode == "gil" else []
if mode != "at once":
    tell(host_nonce=spy.nonce, family=[spy.pid, *family], zygote=zygote)
if mode == "execv":
    os.execv("/bin/sleep", ["sleep", "120"])
time.sleep(120)
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory) -> Path:
    return make_venv(tmp_path_factory.mktemp("zygotes"))


@pytest.fixture
def plan() -> EnvPlan:
    return EnvPlan("a", root=CODE, import_roots=(PACK,))


@pytest.fixture
def host_in(tmp_path, eventually, venv, plan) -> Iterator[Callable[..., tuple[Host, dict]]]:
    """`host_in(mode)` starts a host with a zygote and a worker forked from it, and returns it with what it told."""
    with hosts_of(HOST, tmp_path, eventually, lambda place: built(Settings(envs_folder=place / "envs"), venv, plan), 60) as start:

        def begin(mode: str) -> tuple[Host, dict]:
            host, told = start(mode)
            assert told["zygote"], host.said()
            return host, told

        yield begin


def built(settings: Settings, venv: Path, *plans: EnvPlan) -> None:
    """Have the plans' environments, whose zygotes import something in advance."""
    for plan in plans:
        lay_out(VenvBackend(settings), plan, settings, venv, imports=["PIL"])


@pytest.fixture
def pool_of(tmp_path, venv) -> Iterator[Callable[..., WorkerPool]]:
    """`pool_of(*plans)` gives a pool that has their environments; it is closed with the test."""
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", crash_limit=1000,
                        crash_window=0.0, spawn=60.0, kill=20.0)
    with WorkerPool(settings, registry=Registry(settings=settings, find=lambda group: ())) as pool:

        def make(*plans: EnvPlan) -> WorkerPool:
            built(settings, venv, *plans)
            return pool

        yield make


def nobody_left(told: dict) -> bool:
    return not any(running(pid) for pid in [told["zygote"], *told["family"]]) and not twins(told["host_nonce"])


@pytest.mark.row("F1", "F2", "F4")
@pytest.mark.parametrize("mode", ["idle", "gil", "execv"])
def test_a_host_that_is_gone_takes_its_zygote_and_the_worker_along_whatever_that_does(host_in, fired, eventually, mode):
    host, told = host_in(mode)
    if mode != "execv":
        assert running(told["zygote"]) and all(map(running, told["family"]))
        host.popen.kill()
    with fired.timed():
        eventually(lambda: nobody_left(told), 5 * PROMISED, "the zygote and the worker's tree are gone")
    fired()
    assert fired.worst < PROMISED or os.getloadavg()[0] > 2
    host.popen.kill()
    host.popen.wait()
    assert sweep_finds(host) == []


@pytest.mark.row("F3")
def test_a_host_killed_at_a_random_moment_of_a_fork_leaves_nobody(host_in, fired, eventually):
    for _ in range(6):
        host, told = host_in("at once")
        moment = time.monotonic() + secrets.randbelow(100) / 1000
        while time.monotonic() < moment:
            time.sleep(0.001)   # the moment itself is what is tried; nothing is waited for
        host.popen.kill()
        host.popen.wait()
        with fired.timed():
            eventually(lambda told=told: nobody_left(told), 5 * PROMISED, "the zygote and the worker's tree are gone")
        fired()
        assert sweep_finds(host) == []
        host.close()


@pytest.mark.row("F8")
def test_a_zygote_killed_at_a_random_moment_of_a_fork_costs_no_call_and_leaves_no_twin(pool_of, plan, fired):
    pool = pool_of(plan)
    for _ in range(12):
        pool.call(plan, "jobs:pid")
        keeper = pool.seats()[0].keeper
        keeper._losses = 0   # an environment whose zygotes are always lost goes without
        pool.kill(plan)
        zygote = keeper.pid
        if zygote is None:
            continue
        fired()
        delay = secrets.randbelow(30) / 1000
        killer = threading.Thread(target=_end_later, args=(zygote, delay))
        killer.start()
        assert pool.call(plan, "jobs:echo", 5) == 5
        killer.join()
        record = pool.record(plan)
        workers = [pid for pid in twins(pool._house.opened.nonce) if pid != keeper.pid]
        assert [pid for pid in workers if not is_zygote(pid)] == [record.pid]


def _end_later(pid: int, seconds: float) -> None:
    moment = time.monotonic() + seconds
    while time.monotonic() < moment:
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)


def is_zygote(pid: int) -> bool:
    """Tell whether a process is a zygote that is still warming up; a worker forked from one shows its own generation."""
    return b"COMFY_ENV_GENERATION=0\0" in procs.environment(pid) and procs.row(pid).parent == os.getpid()


@pytest.mark.row("L4")
@pytest.mark.parametrize("cycles", [15, pytest.param(500, marks=[pytest.mark.long, pytest.mark.deadline(1800)])])
def test_crashes_and_forked_replacements_leave_one_worker_one_zygote_and_no_litter(tmp_path, pool_of, plan, fired, cycles):
    pool = pool_of(plan)
    pool.call(plan, "jobs:pid")
    zygote, descriptors = pool.seats()[0].keeper.pid, len(os.listdir("/proc/self/fd"))
    zygotes_own = len(os.listdir(f"/proc/{zygote}/fd"))
    for cycle in range(1, cycles + 1):
        with pytest.raises(CallFailed):
            pool.call(plan, "jobs:kill_self")
        fired()
        assert pool.call(plan, "jobs:echo", cycle) == cycle and pool.record(plan).generation == cycle + 1
        assert sorted(twins(pool._house.opened.nonce)) == sorted([zygote, pool.record(plan).pid])
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 and len(os.listdir(f"/proc/{zygote}/fd")) == zygotes_own
    assert len(list((tmp_path / "run").glob("host-*/w-*"))) == 2


@pytest.mark.row("L2")
def test_six_cold_environments_with_zygotes_at_once_are_all_served_by_forked_workers(pool_of, fired):
    plans = [EnvPlan(f"six-{number}", root=CODE, import_roots=(PACK,)) for number in range(6)]
    pool = pool_of(*plans)
    with ThreadPoolExecutor(6) as threads:
        pids = list(threads.map(lambda each: pool.call(each, "jobs:pid"), plans))
        keepers = {seat.key: seat.keeper for seat in pool.seats()}
        assert [procs.row(pid).parent for pid in pids] == [keepers[each.key].pid for each in plans]
        fired(6)
