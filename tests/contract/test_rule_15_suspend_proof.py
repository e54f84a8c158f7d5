"""Rule 15: every limit counts only what a waiting thread lived through: who slept for hours has exceeded none."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from comfy_env import errors
from comfy_env.pool.clocks import SLICE, LivedClock, Patience
from comfy_env.settings import Settings
from comfy_env.testing.audit import alive
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import CODE, over

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
