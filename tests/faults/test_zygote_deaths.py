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
from comfy_env.process import procs, sweep
from comfy_env.process import zygote as zygote_process
from comfy_env.settings import Settings
from tests.faults.hosts import CODE, PACK, Host
from tests.faults.test_load import twins
from tests.made_envs import lay_out, make_venv
from tests.process.kit import running

pytestmark = pytest.mark.skipif(not zygote_process.possible(), reason="this system lets no host have workers forked")
PROMISED = 1.0   # seconds until a worker's whole group is gone

HOST = """
import threading, time
from comfy_env import EnvPlan
from comfy_env.hooks import hookimpl
mode = arguments[0]

class Tell:
    @hookimpl
    def comfy_env_launch(self, launch):
        if mode == "at once" and launch.generation == 2:
            tell(host_nonce=launch.host_nonce, family=[], zygote=pool.seats()[0].keeper.pid)

    @hookimpl(wrapper=True)
    def comfy_env_spawn(self, launch):
        process = yield
        self.pid, self.nonce = process.pid, launch.host_nonce
        return process

spy = Tell()
pool = make_pool(wrappers=[spy], envs_folder=folder / "envs")
plan = EnvPlan("a", root=CODE, import_roots=(PACK,))
note = folder / "note"
pool.call(plan, "jobs:pid")
zygote = pool.seats()[0].keeper.pid
if mode == "at once":
    pool.kill(plan)
    pool.call(plan, "jobs:pid")
elif mode == "gil":
    threading.Thread(target=lambda: pool.call(plan, "jobs:hold_the_gil_with_a_grandchild", str(note)), daemon=True).start()
    while not os.path.exists(f"{note}.ready"):
        time.sleep(0.005)
family = [int(word) for word in open(f"{note}.ready").read().split()] if mode == "gil" else []
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
    hosts: list[Host] = []

    def begin(mode: str) -> tuple[Host, dict]:
        folder = tmp_path / f"host{len(hosts)}"
        settings = Settings(envs_folder=folder / "envs")
        lay_out(VenvBackend(settings), plan, settings, venv, imports=["PIL"])
        hosts.append(Host(HOST, folder, mode))
        told = eventually(lambda: hosts[-1].told or hosts[-1].popen.poll(), 60, "the host told its numbers")
        assert isinstance(told, dict) and told["zygote"], hosts[-1].said()
        return hosts[-1], told

    yield begin
    for host in hosts:
        host.close()
        for pid in twins(host.told["host_nonce"]) if host.told else ():
            os.kill(pid, signal.SIGKILL)


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
    report = sweep.sweep(host.folder / "run")
    assert not report.killed and not report.skipped and not list((host.folder / "run").glob("host-*"))


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
        report = sweep.sweep(host.folder / "run")
        assert not report.killed and not report.skipped
        host.close()


@pytest.mark.row("F8")
def test_a_zygote_killed_at_a_random_moment_of_a_fork_costs_no_call_and_leaves_no_twin(tmp_path, venv, plan, fired):
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", crash_limit=1000,
                        crash_window=0.0, spawn=60.0, kill=20.0)
    lay_out(VenvBackend(settings), plan, settings, venv, imports=["PIL"])
    with WorkerPool(settings, registry=Registry(settings=settings, find=lambda group: ())) as pool:
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
def test_crashes_and_forked_replacements_leave_one_worker_one_zygote_and_no_litter(tmp_path, venv, plan, fired, cycles):
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", crash_limit=1000,
                        crash_window=0.0, spawn=60.0, kill=20.0)
    lay_out(VenvBackend(settings), plan, settings, venv, imports=["PIL"])
    with WorkerPool(settings, registry=Registry(settings=settings, find=lambda group: ())) as pool:
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
def test_six_cold_environments_with_zygotes_at_once_are_all_served_by_forked_workers(tmp_path, venv, fired):
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", spawn=60.0, kill=20.0)
    plans = [EnvPlan(f"six-{number}", root=CODE, import_roots=(PACK,)) for number in range(6)]
    for each in plans:
        lay_out(VenvBackend(settings), each, settings, venv, imports=["PIL"])
    with WorkerPool(settings, registry=Registry(settings=settings, find=lambda group: ())) as pool, ThreadPoolExecutor(6) as threads:
        pids = list(threads.map(lambda each: pool.call(each, "jobs:pid"), plans))
        keepers = {seat.key: seat.keeper for seat in pool.seats()}
        assert [procs.row(pid).parent for pid in pids] == [keepers[each.key].pid for each in plans]
        fired(6)
