"""Rule 15: every limit counts only what a waiting thread lived through: who slept for hours has exceeded none."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest

from comfy_env import errors
from comfy_env.pool.clocks import LivedClock
from comfy_env.pool.performer import within
from comfy_env.pool.seat import Seat, Worker
from comfy_env.process import procs, tree
from comfy_env.process.patience import SLICE, Patience
from comfy_env.settings import Settings
from comfy_env.testing.audit import alive
from comfy_env.testing.stage import LIMIT
from comfy_env.values import Released
from tests.contract.worlds import CODE, REAL, over, stop
from tests.nights import night_in

LIMITS = {
    "birth": 60, "spawn": 10, "verify": 60, "ping": 5, "release": 10, "kill": 2, "command_lock": 30, "side_reply": 1, "side_rest": 5,
    "interrupt_grace": 5, "shutdown": 5,
}


class Real:
    """A clock that a test moves, as the machine's own would be."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_each_limit_is_a_setting_with_the_contracts_default():
    assert {name: getattr(Settings(), name) for name in LIMITS} == LIMITS


def test_a_night_counts_as_one_slice():
    real = Real()
    clock = LivedClock(real)
    clock.attend(True)
    began = clock.now()
    for _ in range(10):
        real.now += 1.0
        clock.mark()
    assert clock.now() - began == pytest.approx(10)
    real.now += 8 * 3600
    assert clock.now() - began == pytest.approx(10 + SLICE)
    clock.mark()
    assert clock.now() - began == pytest.approx(10 + SLICE)


def test_lived_time_never_goes_back_and_loses_nothing_while_it_is_attended():
    real = Real()
    clock = LivedClock(real)
    clock.attend(True)
    began, last, steps = clock.now(), clock.now(), [0.1, 1.0, 1.9, 3600, 0.2, 2.0, 90, 0.5]
    for step in steps:
        real.now += step
        assert clock.now() >= last
        clock.mark()
        assert clock.now() >= last
        last = clock.now()
    assert last - began == pytest.approx(sum(step if step <= 2 * SLICE else SLICE for step in steps))


def test_a_thread_that_waits_has_patience_for_what_it_lived_through():
    real = Real()
    patience = Patience(5, real)
    real.now += 1
    assert patience.slice() == SLICE and patience.left() == pytest.approx(4)
    real.now += 8 * 3600
    assert patience.left() == pytest.approx(3)
    for _ in range(3):
        real.now += 1
        patience.left()
    assert patience.slice() == 0


def test_a_worker_idle_over_a_night_is_neither_released_nor_ended(stage):
    stage.serve()
    lived = stage.pool._house.lived
    real = lived._real
    lived._real = lambda: real() + 8 * 3600
    stage.pool.tick()
    assert stage.spy.told.count("release") == 0 and stage.state() == "ready"
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1 and not any("ping" in line for line in stage.pool.story(stage.plan))


def test_a_call_silent_over_a_night_has_exceeded_no_limit(stage):
    stage.limited(call_silence=3)
    held = stage.held()
    lived = stage.pool._house.lived
    real = lived._real
    lived._real = lambda: real() + 8 * 3600
    for _ in range(3):
        stage.pool.tick()
    assert stage.state() == "busy"
    stage.go()
    assert held.result(LIMIT) == "gone"


def test_a_caller_whose_patience_slept_still_waits(stage, monkeypatch):
    """A wait of 5 s, a night of sleep in it, and the lane that comes free afterwards."""
    held = stage.held()
    asleep = threading.Event()
    monkeypatch.setattr(
        "comfy_env.pool.pool.Patience", lambda seconds: Patience(seconds, lambda: time.monotonic() + 8 * 3600 * asleep.is_set())
    )
    waiting = stage.start("add", 1, wait=5.0)
    while len(stage.seat.env.ledger.waiting) < 1:
        time.sleep(0.001)
    asleep.set()
    with pytest.raises(TimeoutError):
        waiting.result(1.5)
    stage.go()
    assert (held.result(LIMIT), waiting.result(LIMIT)) == ("gone", 1)


@over("scripted")
def test_a_caller_leaves_when_it_lived_through_its_patience(stage):
    held = stage.held()
    with pytest.raises(errors.CallWithdrawn):
        stage.call("add", 1, wait=0.1)
    stage.go()
    assert held.result(LIMIT) == "gone"


# ---------------------------------------------------------------- the limits that threads count by themselves

WAITERS = (
    "pool.asides", "pool.commands", "pool.exits", "pool.seat", "pool.shutdown", "process.tree", "transport.channel", "transport.limits",
    "transport.mailbox", "transport.relays", "transport.session",
)


@pytest.fixture
def night(monkeypatch):
    return night_in(monkeypatch, *WAITERS)


def still_waits(future):
    with pytest.raises(TimeoutError):
        future.result(1.5)   # longer than any wait for a slice
    return True


@over(*REAL)
def test_a_question_aside_that_slept_still_gets_its_answer_and_is_asked_once(stage, night, eventually):
    stage.limited(side_reply=20)
    pid = stage.call("whoami")["pid"]
    stop(pid)
    asked = stage.on_a_thread(stage.pool.ask_aside, stage.plan, "ping")
    eventually(stage.seat.worker.session._side_lock.locked)
    night.pass_by()
    assert still_waits(asked)
    os.kill(pid, signal.SIGCONT)
    assert asked.result(LIMIT) is not None
    assert stage.pool.ask_aside(stage.plan, "ping") is not None and stage.seat.worker.session.late == 0


class Lock:
    """A lock whose `acquire` a test can replace."""

    def __init__(self, acquire, release):
        self.acquire, self.release = acquire, release


def test_a_question_that_slept_behind_another_one_is_asked_all_the_same(stage, night):
    stage.serve()
    session = stage.seat.worker.session
    lock = session._side_lock
    session._side_lock = Lock(night.in_first(lock.acquire), lock.release)
    assert stage.pool.ask_aside(stage.plan, "ping") is not None


@over("in-process", *REAL)
def test_a_command_that_slept_behind_a_call_still_gets_its_turn(stage, night, eventually):
    held = stage.held()
    session = stage.seat.worker.session
    session._turn.wait = night.in_first(session._turn.wait)
    released = stage.on_a_thread(stage.pool.release, stage.plan)
    eventually(lambda: night.slept, what="it waited in vain once")
    assert still_waits(released)
    stage.go()
    assert isinstance(released.result(LIMIT), Released) and held.result(LIMIT) == "gone"


@over(*REAL)
def test_a_command_whose_answer_slept_still_gets_it(stage, night, eventually):
    """Its worker waits for a callback, and is stopped after the command left."""
    inside, done = threading.Event(), threading.Event()
    pid = stage.call("whoami")["pid"]
    call = stage.begin("jobs:call_back", "slow", callbacks={"slow": lambda: inside.set() or done.wait(LIMIT)})
    assert inside.wait(LIMIT)
    stop(pid)
    released = stage.on_a_thread(stage.pool.release, stage.plan)
    eventually(lambda: stage.seat.worker.session._mail._reading, what="it waits for its answer")
    night.pass_by()
    assert still_waits(released)
    os.kill(pid, signal.SIGCONT)
    assert isinstance(released.result(LIMIT), Released)
    done.set()
    call.result(LIMIT)


@over(*REAL)
def test_an_object_that_another_worker_wants_is_fetched_although_the_host_slept(stage, night, eventually):
    counter, pid = stage.run("jobs:make_counter"), stage.call("whoami")["pid"]
    stop(pid)
    counted = stage.begin("jobs:count", counter, plan=stage.other("two"))
    eventually(lambda: counted.done() or stage.seat.worker.session._mail._reading, what="it waits for the object")
    night.pass_by()
    assert still_waits(counted)
    os.kill(pid, signal.SIGCONT)
    assert counted.result(LIMIT) == 1


@over(*REAL)
def test_a_question_and_a_command_end_with_their_worker_and_not_with_their_limit(stage, eventually):
    stage.limited(side_reply=80, command_lock=80)
    inside, done = threading.Event(), threading.Event()
    pid = stage.call("whoami")["pid"]
    call = stage.begin("jobs:call_back", "slow", callbacks={"slow": lambda: inside.set() or done.wait(LIMIT)})
    assert inside.wait(LIMIT)
    stop(pid)
    session = stage.seat.worker.session
    asked, released = stage.on_a_thread(stage.pool.ask_aside, stage.plan, "ping"), stage.on_a_thread(stage.pool.release, stage.plan)
    eventually(lambda: session._side_lock.locked() and session._mail._reading, what="both wait for their answers")
    os.kill(pid, signal.SIGKILL)
    assert asked.result(LIMIT) is None
    assert isinstance(released.exception(LIMIT), errors.LaneLost)
    done.set()
    assert isinstance(call.exception(LIMIT), errors.WorkerCrashed)


@over("in-process")
def test_a_worker_that_is_a_thread_is_waited_for_although_the_host_slept(stage, night):
    stage.serve()
    process = stage.spy.processes[0]
    process._thread.join = night.in_first(process._thread.join)
    assert process.stop(20.0) is not None and night.slept


class Output:
    """Takes a few bytes at a time; a night falls into the first time."""

    def __init__(self, night):
        self.night, self.taken = night, b""

    def feed(self, fd):
        if not self.taken:
            self.night.pass_by()
        self.taken += os.read(fd, 4)
        return True


def test_last_words_are_read_although_the_host_slept_over_them(night):
    read, write = os.pipe()
    try:
        os.write(write, b"last words")
        output = Output(night)
        Worker(1, None, None, None, None, output, process=SimpleNamespace(outputs=(read,))).drain(0.2)
        assert output.taken == b"last words"
    finally:
        os.close(read)
        os.close(write)


@over(*REAL)
def test_a_kill_that_slept_leaves_no_worker_wedged(stage, night, monkeypatch):
    """A night falls into the first look of every kill, its backend's and the core's."""
    looked = set()

    def look(end, real=tree._End._round):
        if end in looked:
            return real(end)
        looked.add(end)
        return night.pass_by()

    pid = stage.call("whoami")["pid"]
    monkeypatch.setattr(tree._End, "_round", look)
    assert stage.pool.kill(stage.plan)
    assert stage.state() in ("cold", "gone") and not alive(pid) and looked
    assert stage.call("add", 1, 1) == 2 and stage.record.generation == 2


def test_a_kill_of_strangers_that_slept_leaves_none(night, monkeypatch):
    mark = {"COMFY_ENV_NONCE": "n" * 32}
    stray = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); import time; time.sleep(600)"], env=mark, stdout=subprocess.PIPE)
    try:
        assert stray.stdout is not None and stray.stdout.read(1)
        rows = procs.rows
        monkeypatch.setattr(procs, "rows", lambda: rows() if night.slept else [night.pass_by()][:0])   # its first look finds nobody
        assert tree.end_carriers("n" * 32) == (stray.pid,)
    finally:
        stray.kill()
        stray.wait()
        stray.stdout.close()


def test_a_backends_kill_that_slept_is_waited_for(night, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr("threading.Thread.join", night.in_first(threading.Thread.join))
    threading.Timer(0.1, gate.set).start()   # after the night, if a little
    assert within(5, lambda: gate.wait(LIMIT), "a kill") == (True, True, None)


def test_a_close_that_slept_ends_every_worker(stage, night, monkeypatch, caplog):
    """The night falls into the wait for the first environment; the second one has its time all the same."""
    for key in ("one", "two"):
        assert stage.call("add", 1, plan=stage.other(key)) == 1
    waits = Seat.wait_for

    def sleeps_once(seat, *args):
        if not night.slept:
            night.pass_by()
        return waits(seat, *args)

    monkeypatch.setattr(Seat, "wait_for", sleeps_once)
    stage.pool.close()
    assert "did not end in time" not in caplog.text
    assert all(process.exit_status() is not None for process in stage.spy.processes)


HOST = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from comfy_env import CallOptions, EnvPlan, WorkerPool
    from comfy_env.settings import Settings
    folder = Path(sys.argv[1])
    limits = dict.fromkeys(("call_silence", "interrupt_grace", "ping", "birth", "verify", "kill"), 2.0) | {"ping_idle": 0.05}
    with WorkerPool(Settings(runtime_folder=folder / "run", log_folder=folder / "logs", **limits)) as pool:
        plan = EnvPlan.existing(sys.executable, "sleeper", root=sys.argv[2])
        pid = pool.call(plan, "jobs:pid")
        print(pid, flush=True)
        for number in range(5):
            pool.call(plan, "jobs:sleep", 0.7)
            time.sleep(0.06)
            assert pool.call(plan, "jobs:add", number, 1) == number + 1
        print(pool.record(plan).generation, pool.call(plan, "jobs:pid") == pid, flush=True)
""")


@pytest.mark.slow
def test_host_and_worker_stopped_for_longer_than_every_limit_go_on_as_if_nothing_was(tmp_path, record_property):
    host = subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path), str(CODE)], stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout is not None
        worker = int(host.stdout.readline())
        for _ in range(2):
            time.sleep(0.4)
            for pid in (host.pid, worker):
                os.kill(pid, signal.SIGSTOP)
            time.sleep(2.7)
            for pid in (host.pid, worker):
                os.kill(pid, signal.SIGCONT)
        assert host.stdout.read().split() == ["1", "True"]
        assert host.wait(LIMIT) == 0 and not alive(worker)
    finally:
        host.kill()
        host.wait()
        host.stdout.close()
