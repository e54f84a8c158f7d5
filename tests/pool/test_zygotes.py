"""Workers forked from a zygote: when they are, that they die and are told like any other, and when they are not."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.backends.venv import VenvBackend
from comfy_env.envs import preloads
from comfy_env.errors import CallFailed, PlanError, SpawnFailed, WorkerCrashed
from comfy_env.hooks import Registry, hookimpl
from comfy_env.pool import zygotes
from comfy_env.process import inheritance, procs
from comfy_env.process import zygote as zygote_process
from comfy_env.settings import Settings
from comfy_env.testing.clock import MovableClock
from tests.contract.worlds import CODE
from tests.made_envs import lay_out, make_venv
from tests.nights import night_in
from tests.process.kit import carriers, running

pytestmark = pytest.mark.skipif(not zygote_process.possible(), reason="this system lets no host have workers forked")

PACK = """
import os, random, sys
def draw():
    import random
    return random.random()
def escape():
    import time
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(write, str(os.getpid()).encode())
        time.sleep(120)
    os.wait()
    return int(os.read(read, 32))
def use(name):
    import importlib
    importlib.import_module(name)
    return name in sys.modules
def inherited():
    import resource
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {"umask": status["Umask"].strip(), "ignored": status["SigIgn"].strip(), "blocked": status["SigBlk"].strip(),
            "nice": os.getpriority(os.PRIO_PROCESS, 0), "processors": sorted(os.sched_getaffinity(0)),
            "limits": [resource.getrlimit(n) for n in range(16)], "score": open("/proc/self/oom_score_adj").read()}
def whose(name):
    import importlib
    return getattr(importlib.import_module(name), "whose", "nobody's")
def marks():
    with open('/proc/self/environ') as shown:
        return {"shown": shown.read().split('\\0'), "own": dict(os.environ)}
def descriptors():
    return {int(n): os.readlink('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n)}
def compute():
    import numpy, torch
    leaf = torch.ones(256, 256, requires_grad=True)
    (leaf @ leaf).sum().backward()
    numpy.ones((384, 384)) @ numpy.ones((384, 384))
    with open('/proc/self/smaps_rollup') as told:
        uss = sum(int(line.split()[1]) for line in told if line.startswith('Private'))
    return {'threads': torch.get_num_threads(), 'gradient': float(leaf.grad[0, 0]), 'uss': uss,
            'drawn': [float(torch.rand(1)), float(numpy.random.rand())]}
def breed():
    import signal, time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    number = 0
    while True:
        number += 1
        if not os.fork():
            if number % 2:
                os.setsid()
            time.sleep(60)
            os._exit(0)
        time.sleep(0.005)
def signals():
    import signal
    return [signal.getsignal(n) is w for n, w in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler))]
"""


class Home:
    """Pools over environments that are laid out as built; ``site`` is a folder their workers import from."""

    def __init__(self, folder: Path, venv: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.venv = make_venv(folder / "own", self.site) if venv is None else venv
        self.root = folder / "pack"
        self.root.mkdir()
        (self.root / "zygote_pack.py").write_text(PACK)
        self.settings = Settings(runtime_folder=folder / "run", log_folder=folder / "logs", envs_folder=folder / "envs", crash_limit=1000,
                                 spawn=40.0, kill=10.0)
        self.pools: list[WorkerPool] = []

    def pool(self, wrappers: tuple = (), clock: MovableClock | None = None, **more: object) -> WorkerPool:
        settings = replace(self.settings, **more)
        registry = Registry(wrappers=wrappers, settings=settings, find=lambda group: ())
        self.pools.append(WorkerPool(settings, registry=registry, clock=clock))
        return self.pools[-1]

    def plan(self, key: str = "z", imports: tuple[str, ...] = ("PIL",), **more: object) -> EnvPlan:
        plan = EnvPlan(key, root=self.root, import_roots=(CODE,), **more)
        lay_out(VenvBackend(self.settings), plan, self.settings, self.venv, imports)
        return plan

    def module(self, name: str, text: str) -> None:
        """Install a module that counts as heavy where the zygote imports it."""
        self.site.mkdir(exist_ok=True)
        (self.site / f"{name}.py").write_text(text)

    def close(self) -> None:
        for pool in self.pools:
            pool.close()


@pytest.fixture(scope="session")
def venv(tmp_path_factory) -> Path:
    return make_venv(tmp_path_factory.mktemp("zygotes"))


@pytest.fixture
def home(tmp_path, venv) -> Iterator[Home]:
    home = Home(tmp_path, venv)
    yield home
    home.close()


@pytest.fixture
def own(tmp_path) -> Iterator[Home]:
    """A home whose environments have a folder of modules of their own."""
    (tmp_path / "site").mkdir()
    (tmp_path / "own").mkdir()
    home = Home(tmp_path, None)
    yield home
    home.close()


def keeper(pool: WorkerPool, plan: EnvPlan) -> zygotes.Keeper:
    return next(seat.keeper for seat in pool.seats() if seat.key == plan.key)


def parent(pid: int) -> int:
    return procs.row(pid).parent


def is_forked(pool: WorkerPool, plan: EnvPlan) -> bool:
    mother = parent(pool.call(plan, "jobs:pid"))
    return mother != os.getpid() and mother == keeper(pool, plan).pid


# ---- when there is one

def test_with_a_list_the_first_worker_and_every_later_one_is_forked(home):
    pool, plan = home.pool(), home.plan()
    for generation in (1, 2, 3):
        assert is_forked(pool, plan) and pool.record(plan).generation == generation
        pool.kill(plan)
    assert [line for line in pool.story(plan) if f"a zygote serves (pid {keeper(pool, plan).pid})" in line]


def test_a_zygote_is_waited_for_although_the_host_slept(home, monkeypatch):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    pool.kill(plan)
    warmed = keeper(pool, plan)._zygote.warmed
    warmed.wait = night_in(monkeypatch, "pool.zygotes").in_first(warmed.wait)
    assert is_forked(pool, plan)


def test_without_a_list_the_first_worker_is_started_plainly_and_what_it_imports_is_kept_beside_the_stamp(own):
    own.module("einops", "")
    pool, plan = own.pool(), own.plan(imports=())
    assert pool.call(plan, "zygote_pack:use", "einops") and parent(pool.record(plan).pid) == os.getpid()
    assert preloads.read(preloads.folder_of(plan, own.settings)) == ("einops",)
    pool.kill(plan)
    assert is_forked(pool, plan) and "einops" in pool.call(plan, "jobs:modules")


def test_an_interpreter_that_is_used_as_it_is_has_no_zygote(home):
    pool, plan = home.pool(), EnvPlan.existing(sys.executable, "as-it-is", root=CODE)
    for _ in range(2):
        assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
        pool.kill(plan)
    assert keeper(pool, plan) is None


@pytest.mark.parametrize(("settings", "limits"), [({"zygote": 0}, {}), ({}, {"zygote": False}), ({}, {"zygote": 0})])
def test_an_environment_that_opts_out_has_no_zygote(home, settings, limits):
    pool, plan = home.pool(**settings), home.plan(limits=limits)
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid() and keeper(pool, plan) is None


def test_true_and_false_stand_for_a_switch_and_for_no_other_setting():
    assert [Settings().limited([("zygote", value)]).zygote for value in (False, True, 2)] == [0, 1, 2]
    for wrong in (("birth", True), ("zygote", 3), ("zygote", "yes")):
        with pytest.raises(PlanError):
            Settings().limited([wrong])


def test_beside_a_gpu_nothing_is_forked_unless_it_is_asked_for(home, monkeypatch):
    monkeypatch.setattr(zygotes, "GPUS", ("/dev/null",))
    pool, plan, asked = home.pool(), home.plan(), home.plan("asked", limits={"zygote": 2})
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid() and keeper(pool, plan) is None
    assert is_forked(pool, asked)


class Shell:
    """Puts a program in front of the worker's."""

    @hookimpl
    def comfy_env_launch(self, launch):
        return replace(launch, argv=("/bin/sh", "-c", 'exec "$@"', "wrapper", *launch.argv))


def test_a_worker_that_a_wrapper_starts_with_another_program_is_not_forked(home):
    pool, plan = home.pool(wrappers=(Shell(),)), home.plan()
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid() and keeper(pool, plan).pid is None


def test_a_module_that_the_pack_has_under_the_same_name_is_not_imported_in_advance(home):
    (home.root / "PIL").mkdir()
    (home.root / "PIL" / "__init__.py").write_text("mine = True")
    pool, plan = home.pool(), home.plan()
    assert pool.call(plan, "zygote_pack:use", "PIL") and keeper(pool, plan).pid is None


def test_a_module_that_the_pack_has_by_now_is_the_packs_and_not_the_zygotes(own):
    for name in ("einops", "trimesh"):
        own.module(name, "whose = 'installed'")
    pool, plan = own.pool(), own.plan(imports=("einops", "trimesh"))
    assert is_forked(pool, plan) and pool.call(plan, "zygote_pack:whose", "einops") == "installed"
    old = keeper(pool, plan).pid
    (own.root / "einops.py").write_text("whose = 'mine'")
    pool.kill(plan)
    assert pool.call(plan, "zygote_pack:whose", "einops") == "mine"
    assert is_forked(pool, plan) and keeper(pool, plan).pid != old and pool.call(plan, "zygote_pack:whose", "trimesh") == "installed"


def test_what_the_modules_imported_with_them_hides_nothing_of_the_packs(own):
    own.module("einops", "import companion, colorsys")
    own.module("companion", "whose = 'installed'")
    pool, plan = own.pool(), own.plan(imports=("einops",))
    assert is_forked(pool, plan)
    for name in ("companion", "colorsys"):
        (own.root / f"{name}.py").write_text("whose = 'mine'")
        pool.kill(plan)
        assert pool.call(plan, "zygote_pack:whose", name) == "mine" and parent(pool.record(plan).pid) == os.getpid()
        assert [line for line in pool.story(plan) if "its zygote is not used" in line and name in line]
    for name in ("companion", "colorsys"):
        (own.root / f"{name}.py").unlink()
    pool.kill(plan)
    assert is_forked(pool, plan)


@pytest.mark.parametrize("zygote", [0, 1])
def test_modules_of_a_pack_that_are_called_like_the_workers_own_imports_are_not_taken_for_them(own, zygote):
    own.module("einops", "")
    pool, plan = own.pool(), own.plan(imports=("einops",), limits={"zygote": zygote})
    for name in ("secrets", "hmac", "inspect"):
        (own.root / f"{name}.py").write_text("whose = 'mine'")
    assert is_forked(pool, plan) if zygote else parent(pool.call(plan, "jobs:pid")) == os.getpid()


def test_a_zygote_that_came_to_serve_for_another_launch_is_not_forked_from(own, monkeypatch, eventually):
    class Varies:
        value = "first"

        @hookimpl
        def comfy_env_launch(self, launch):
            return replace(launch, variables={**launch.variables, "VARIES": Varies.value})

    monkeypatch.setattr(zygotes, "PATIENCE", 0.001)
    own.module("einops", "import time; time.sleep(1)")
    pool, plan = own.pool(wrappers=(Varies(),)), own.plan(imports=("einops",))
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
    pool.kill(plan)
    monkeypatch.setattr(zygotes, "PATIENCE", 0.5)
    Varies.value = "second"
    assert pool.call(plan, "zygote_pack:marks")["own"]["VARIES"] == "second" and parent(pool.record(plan).pid) == os.getpid()
    pool.kill(plan)
    assert is_forked(pool, plan)


# ---- it is a worker like any other

def test_a_forked_worker_carries_its_own_marks_and_none_of_its_zygotes(home):
    pool, plan = home.pool(), home.plan()
    told = pool.call(plan, "zygote_pack:marks")
    own = told["own"]["COMFY_ENV_NONCE"]
    assert f"COMFY_ENV_NONCE={own}" in told["shown"] and carriers(own) == [pool.record(plan).pid]
    assert told["own"]["COMFY_ENV_GENERATION"] == "1" and "OMP_NUM_THREADS" not in told["own"].keys() - os.environ.keys()
    zygote = keeper(pool, plan)._zygote
    assert carriers(zygote.nonce) == [zygote.pid]


def test_its_variables_signals_and_descriptors_are_those_of_a_worker_that_was_started_plainly(home):
    pool, forked, plain = home.pool(), home.plan("forked"), home.plan("plain", limits={"zygote": 0})
    seen = [pool.call(plan, "zygote_pack:marks")["own"] for plan in (forked, plain)]
    different = {name for name in seen[0].keys() | seen[1].keys() if seen[0].get(name) != seen[1].get(name)}
    assert is_forked(pool, forked) and different <= {"COMFY_ENV_NONCE", "COMFY_ENV_ENV", "PATH"}
    assert seen[0]["PATH"].replace("/forked/", "/plain/") == seen[1]["PATH"]
    assert pool.call(forked, "zygote_pack:signals") == pool.call(plain, "zygote_pack:signals") == [True, True]
    opened = [pool.call(plan, "zygote_pack:descriptors").values() for plan in (forked, plain)]
    assert len({tuple(sorted(re.sub(r"[0-9].*", "", what) for what in each)) for each in opened}) == 1, opened


class Inheritable:
    """What a process gets from this one, in two states: as it was, and with everything of it changed."""

    def __init__(self) -> None:
        self.core, nice = resource.getrlimit(resource.RLIMIT_CORE), os.getpriority(os.PRIO_PROCESS, 0)
        processors, score = os.sched_getaffinity(0), Path("/proc/self/oom_score_adj").read_text()
        if os.geteuid() or len(processors) < 2:
            pytest.skip("only root can take back what it gave up")
        mask, hangup, less = os.umask(0o022), signal.getsignal(signal.SIGHUP), 4096 if self.core[0] != 4096 else 8192
        os.umask(mask)
        other = signal.SIG_DFL if hangup == signal.SIG_IGN else signal.SIG_IGN   # nohup had it ignored
        self.states = ((mask, self.core[0], processors, nice, hangup, signal.SIG_UNBLOCK, score),
                       (mask ^ 0o005, less, {min(processors)}, nice + 3, other, signal.SIG_BLOCK, "77"))

    def put(self, number: int) -> None:
        mask, size, processors, nice, hangup, block, score = self.states[number]
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_CORE, (size, self.core[1]))
        os.sched_setaffinity(0, processors)
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        signal.signal(signal.SIGHUP, hangup)
        signal.pthread_sigmask(block, {signal.SIGUSR2})
        Path("/proc/self/oom_score_adj").write_text(score)


@pytest.fixture
def inheritable() -> Iterator[Inheritable]:
    made = Inheritable()
    yield made
    made.put(0)


def test_a_forked_worker_has_from_its_host_what_a_worker_that_was_started_plainly_has_now(home, inheritable):
    pool, forked, plain = home.pool(), home.plan("forked"), home.plan("plain", limits={"zygote": 0})
    seen = {}
    for number in (0, 1, 0):
        inheritable.put(number)
        pool.kill(forked)
        pool.kill(plain)
        one, other = (pool.call(plan, "zygote_pack:inherited") for plan in (forked, plain))
        assert is_forked(pool, forked) and one == other
        assert seen.setdefault(number, one) == one
    assert not [name for name in seen[0] if seen[0][name] == seen[1][name]]


def test_a_zygote_that_cannot_be_made_like_its_host_costs_that_birth_nothing_and_is_made_anew(home, monkeypatch):
    def refused(pid):
        raise PermissionError(1, "Operation not permitted")

    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    old = keeper(pool, plan).pid
    pool.kill(plan)
    monkeypatch.setattr(inheritance, "give", refused)
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
    monkeypatch.undo()
    pool.kill(plan)
    assert is_forked(pool, plan) and keeper(pool, plan).pid != old


def test_a_host_that_has_other_rights_by_now_forks_from_a_zygote_that_has_them_too(home, monkeypatch):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    old = keeper(pool, plan).pid
    monkeypatch.setattr(inheritance, "rights", lambda: ("another group",))
    pool.kill(plan)
    assert is_forked(pool, plan) and keeper(pool, plan).pid != old


@pytest.mark.parametrize(("how", "status"), [
    (("jobs:exit_now", 3), "status 3"), (("jobs:kill_self",), "signal 9"), (("jobs:segfault",), "signal 11"), (("jobs:abort",), "signal 6"),
])
def test_the_death_of_a_forked_worker_is_told_with_its_real_status_and_last_words(home, how, status):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    with pytest.raises(WorkerCrashed) as caught:
        pool.call(plan, *how)
    assert status in caught.value.status
    if "abort" not in how[0]:
        assert any("last words" in line for line in caught.value.output)
    assert is_forked(pool, plan) and pool.record(plan).generation == 2


def test_what_left_its_session_goes_with_the_worker_and_the_zygote_stays(home, eventually):
    pool, plan = home.pool(), home.plan()
    escaped = pool.call(plan, "zygote_pack:escape")
    zygote = keeper(pool, plan).pid
    assert running(escaped)
    pool.kill(plan)
    assert not running(escaped) and running(zygote)


def test_a_forked_worker_that_forks_all_the_time_goes_with_everybody_it_forked(home, eventually):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    nonce = pool.call(plan, "zygote_pack:marks")["own"]["COMFY_ENV_NONCE"]
    breeding = threading.Thread(target=lambda: _call_that_dies(pool, plan))
    breeding.start()
    eventually(lambda: len(carriers(nonce)) > 20, 30, "it forked")
    pool.kill(plan)
    breeding.join(30)
    eventually(lambda: not carriers(nonce), what="nobody is left")
    assert is_forked(pool, plan)


def _call_that_dies(pool, plan):
    with pytest.raises(CallFailed):
        pool.call(plan, "zygote_pack:breed")


def test_random_streams_are_not_those_of_a_sibling(home):
    pool, plan = home.pool(), home.plan(imports=("numpy", "numpy.random", "PIL"))
    drawn = []
    for _ in range(2):
        drawn.append((pool.call(plan, "zygote_pack:draw"), pool.call(plan, "zygote_pack:draw")))
        pool.kill(plan)
    assert len({number for pair in drawn for number in pair}) == 4


def test_its_record_names_the_zygote_it_was_forked_from(home):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    record = next((home.folder / "run").glob("host-*/w-z-1-*/worker.record")).read_text()
    assert keeper(pool, plan)._zygote.nonce in record and not list((home.folder / "run").glob("host-*/w-z-2-*"))


# ---- ends

def test_a_zygote_that_was_killed_costs_no_call_and_its_worker_goes_on(home):
    pool, plan = home.pool(), home.plan()
    pid = pool.call(plan, "jobs:pid")
    os.kill(keeper(pool, plan).pid, signal.SIGKILL)
    assert pool.call(plan, "jobs:pid") == pid
    with pytest.raises(CallFailed) as caught:
        pool.call(plan, "jobs:kill_self")
    assert "signal 9" in caught.value.status or "lost with the forker" in caught.value.status   # init may have collected it before
    assert is_forked(pool, plan) and pool.record(plan).generation == 2


def test_a_zygote_that_does_not_answer_holds_up_no_kill_and_no_birth_and_is_replaced(home, eventually):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    zygote, worker = keeper(pool, plan).pid, pool.record(plan).pid
    os.kill(zygote, signal.SIGSTOP)
    with pytest.raises(WorkerCrashed) as caught:
        pool.call(plan, "jobs:exit_now", 9)
    assert "status 9" in caught.value.status
    assert pool.call(plan, "jobs:pid") != worker and pool.record(plan).generation == 2
    eventually(lambda: not running(zygote), what="the zygote is ended")
    pool.kill(plan)
    assert is_forked(pool, plan)


def test_a_worker_whose_zygote_was_killed_is_ended_with_what_left_its_session(home, eventually):
    pool, plan = home.pool(), home.plan()
    escaped, pid = pool.call(plan, "zygote_pack:escape"), pool.record(plan).pid
    os.kill(keeper(pool, plan).pid, signal.SIGKILL)
    pool.kill(plan)
    eventually(lambda: not running(escaped) and not running(pid))


def test_a_zygote_made_of_an_environment_that_changed_ends_when_its_last_worker_did(home, eventually):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    old, worker = keeper(pool, plan).pid, pool.record(plan).pid
    keeper(pool, plan).drop()
    assert running(old) and running(worker) and keeper(pool, plan).pid is None
    with pytest.raises(WorkerCrashed) as caught:
        pool.call(plan, "jobs:exit_now", 7)
    assert "status 7" in caught.value.status
    assert is_forked(pool, plan) and keeper(pool, plan).pid != old
    eventually(lambda: procs.row(old) is None, what="the old zygote is collected")


def test_the_news_that_an_environment_changed_drops_its_zygote(home, eventually):
    from comfy_env.lifecycle.events import EnvChanged
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    pool.kill(plan)
    seat = pool.seats()[0]
    old = keeper(pool, plan).pid
    seat.post(EnvChanged())
    eventually(lambda: procs.row(old) is None, what="the zygote is collected")
    assert is_forked(pool, plan)


def test_a_host_that_ignores_its_childrens_ends_still_learns_how_forked_workers_end(home):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pool, plan = home.pool(), home.plan()
        assert is_forked(pool, plan)
        with pytest.raises(WorkerCrashed) as caught:
            pool.call(plan, "jobs:exit_now", 11)
        assert "status 11" in caught.value.status
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_removing_an_environment_ends_its_zygote(home, eventually):
    pool, plan = home.pool(), home.plan()
    assert is_forked(pool, plan)
    zygote = keeper(pool, plan).pid
    pool.remove(plan)
    eventually(lambda: procs.row(zygote) is None, what="the zygote is collected")


def test_workers_that_are_each_started_with_something_else_go_without_after_a_few(home, caplog):
    class Counts:
        def __init__(self):
            self.number = 0

        @hookimpl
        def comfy_env_launch(self, launch):
            self.number += 1
            return replace(launch, variables={**launch.variables, "NUMBER": str(self.number)})

    pool, plan = home.pool(wrappers=(Counts(),)), home.plan()
    parents = []
    for _ in range(zygotes.CHANGES + 2):
        parents.append(parent(pool.call(plan, "jobs:pid")))
        pool.kill(plan)
    assert os.getpid() not in parents[:-1][: zygotes.CHANGES] and parents[-1] == os.getpid()
    assert len([line for line in pool.story(plan) if "changes from one to the next" in line]) == 1


def test_a_package_installed_since_makes_the_zygote_anew(own):
    own.module("einops", "version = 1")
    pool, plan = own.pool(), own.plan(imports=("einops",))
    assert is_forked(pool, plan)
    old = keeper(pool, plan).pid
    own.module("other", "")
    pool.kill(plan)
    assert is_forked(pool, plan) and keeper(pool, plan).pid != old


def test_a_zygote_nobody_needs_ends_after_its_time(home, eventually):
    clock = MovableClock()
    pool, plan = home.pool(clock=clock, zygote_idle=100.0, idle_reap=0.0), home.plan()
    assert is_forked(pool, plan)
    zygote = keeper(pool, plan).pid
    for _ in range(3):
        clock.advance(90)
        pool.tick()
    assert running(zygote)   # its worker lives
    pool.kill(plan)
    pool.tick()
    clock.advance(90)
    pool.tick()
    assert running(zygote)
    clock.advance(20)
    pool.tick()
    eventually(lambda: procs.row(zygote) is None, what="the zygote is collected")
    assert is_forked(pool, plan)


def test_closing_the_pool_ends_every_zygote_and_removes_its_folder(home):
    pool, plans = home.pool(), [home.plan(key) for key in "ab"]
    pids = [keeper(pool, plan).pid for plan in plans if pool.call(plan, "jobs:pid")]
    pool.close()
    assert not any(running(pid) for pid in pids) and not list((home.folder / "run").glob("host-*"))


def test_closing_while_a_zygote_still_imports_ends_it_in_time(own, monkeypatch):
    monkeypatch.setattr(zygotes, "PATIENCE", 0.001)
    own.module("einops", "import time; time.sleep(60)")
    pool, plan = own.pool(), own.plan(imports=("einops",))
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid()   # nobody waits for a zygote for longer than that part of a spawn's limit
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < own.settings.shutdown + own.settings.kill


# ---- what cannot be forked from falls back, named

LOCKED = "import os, threading\nlock = threading.Lock()\nlock.acquire()\nos.register_at_fork(after_in_child=lock.acquire)\n"
REFUSED = {
    "hangs": (LOCKED, "computed nothing within 2 s"),
    "a thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n",
                 "threads that its imports started run in it: 1"),
    "a socket": ("import socket\nkept = socket.socket()\n", "left open: socket:"),
    "a process": ("import subprocess, sys\nkept = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n", "processes"),
    "raises": ("raise ValueError('not here')\n", "einops cannot be imported in it: ValueError: not here"),
    "crashes": ("import os\nos.abort()\n", "signal 6"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_import_that_breaks_forking_is_found_before_any_worker_is_forked_and_named(own, caplog, monkeypatch, what):
    monkeypatch.setattr(zygotes, "TRIAL", 2.0)
    text, why = REFUSED[what]
    own.module("einops", f"import sys\nif '--zygote' in sys.orig_argv:\n    exec({text!r})\n")
    pool, plan = own.pool(), own.plan(imports=("einops",))
    with caplog.at_level(logging.WARNING, logger="comfy_env"):
        assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
        pool.kill(plan)
        assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
    told = [record.getMessage() for record in caplog.records if "without a zygote" in record.getMessage()]
    assert len(told) == 1 and why in told[0], told
    assert any("without a zygote" in line for line in pool.story(plan))


OPENMP = """
import sys
if "--zygote" in sys.orig_argv:
    import torch
    torch.set_num_threads(2)
    torch.ones(1 << 22).exp()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_parallel_region_at_import_is_found_by_a_child_that_hangs_and_workers_are_started_plainly(own, caplog, monkeypatch):
    monkeypatch.setattr(zygotes, "PATIENCE", 1.0)
    monkeypatch.setattr(zygotes, "TRIAL", 2.0)
    own.module("trimesh", OPENMP)   # imported after torch
    pool, plan = own.pool(spawn=120.0), own.plan(imports=("torch", "trimesh"))
    with caplog.at_level(logging.WARNING, logger="comfy_env"):
        assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
    told = [record.getMessage() for record in caplog.records if "without a zygote" in record.getMessage()]
    assert len(told) == 1 and "a child forked from it computed nothing within 2 s" in told[0], told
    assert "threads that its imports started run in it" in told[0]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_forked_worker_computes_with_torch_as_one_that_was_started_plainly(home, record_property):
    pool = home.pool(spawn=120.0)
    forked, plain = home.plan("forked", imports=("torch", "numpy", "numpy.random")), home.plan("plain", imports=(), limits={"zygote": 0})
    told = {plan.key: pool.call(plan, "zygote_pack:compute") for plan in (forked, plain)}
    pool.kill(forked)
    again = pool.call(forked, "zygote_pack:compute")
    assert is_forked(pool, forked)
    assert told["forked"]["threads"] == told["plain"]["threads"] == again["threads"]
    assert told["forked"]["gradient"] == told["plain"]["gradient"] == 2 * 256.0
    assert len({value for one in (told["forked"], again) for value in one["drawn"]}) == 4
    record_property("uss_kib", [told["plain"]["uss"], told["forked"]["uss"], again["uss"]])
    assert again["uss"] < 0.2 * told["plain"]["uss"]


def test_after_a_forked_worker_that_never_served_the_next_one_is_started_plainly(home):
    class Ends:
        first = True

        @hookimpl(wrapper=True)
        def comfy_env_transport(self, process, launch):
            if Ends.first:
                Ends.first = False
                os.kill(process.pid, signal.SIGKILL)
            return (yield)

    pool, plan = home.pool(wrappers=(Ends(),)), home.plan()
    with pytest.raises((CallFailed, SpawnFailed)):
        pool.call(plan, "jobs:pid")
    assert parent(pool.call(plan, "jobs:pid")) == os.getpid()
    pool.kill(plan)
    assert is_forked(pool, plan)
