"""F15 to F19: what comes late, meets, or stands still."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from comfy_env import WorkerPool
from comfy_env.errors import CallSilent, LaneLost
from comfy_env.hooks import Registry
from comfy_env.settings import Settings
from comfy_env.testing.clock import MovableClock
from comfy_env.testing.fakes import FakeShelf
from comfy_env.testing.scripted import ScriptedBackend
from comfy_env.values import CallOptions, EnvPlan
from tests.faults.hosts import Host
from tests.transport.workers import joined

TRUTH = {"text": "truth"}


# ---------------------------------------------------------------- F15: the GIL is held

@pytest.mark.row("F15")
@pytest.mark.parametrize("seconds", [4, pytest.param(150, marks=[pytest.mark.long, pytest.mark.deadline(240)])])
def test_a_worker_that_holds_the_gil_is_not_killed_and_its_call_completes(make_ward, fired, eventually, tmp_path, seconds):
    ward = make_ward(tick=0.1, ping_idle=0.5, idle_release=0.2, idle_reap=0.5)
    plan, mark = ward.plan(), tmp_path / "held"
    pid = ward.call(plan, "me")
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(ward.call, plan, "jobs:hold_the_gil", seconds, str(mark))
        eventually(mark.exists, what="the GIL is held")
        held = time.monotonic()
        session = ward.pool.seats()[0].worker.session
        refused = 0
        while not call.done() and time.monotonic() < held + seconds - 1.5:
            try:
                session.side(40, {}, time.monotonic() + 1)
            except TimeoutError:
                refused += 1
        fired(refused)
        assert call.result(seconds + 30) == seconds
    assert session.side(40, {}, time.monotonic() + 10) == {}, "the side lane recovered"
    assert ward.pool.seats()[0].env.row.generation == 1 and ward.spy.processes[0].pid == pid


# ---------------------------------------------------------------- F16: late replies

@pytest.mark.row("F16")
def test_a_thousand_replies_that_come_after_their_limit_answer_nobody(fired):
    with joined() as worker:
        worst, number = 0.0, 0
        while worker.session.late < 1000 and number < 5000:
            number, began = number + 1, time.monotonic()
            with contextlib.suppress(TimeoutError):   # on a busy machine an answer may be there before the limit is looked at
                worker.call("wire_pack:sleep", 0.004, deadline=time.monotonic() + 0.001)
            worst = max(worst, time.monotonic() - began)
            assert worker.value("wire_pack:echo", number) == number
        fired(worker.session.late)
        fired.took(worst)
        assert worker.session.late == 1000


@pytest.mark.row("F16")
def test_replies_of_another_generation_or_request_are_never_taken_for_the_answer(ward, fired):
    plan = ward.plan(fault={"when": "stale", "how": ""})
    for number in range(340):
        assert ward.call(plan, "echo", {"text": "truth", "number": number}) == {"text": "truth", "number": number}
    fired(ward.fired())
    assert ward.pool.seats()[0].worker.session.late == ward.fired() == 3 * 340


@pytest.mark.row("F16")
def test_a_call_that_ends_just_as_its_limit_is_hit_is_answered_once_and_never_wrongly(make_ward, fired):
    ward = make_ward()
    plan = ward.plan(limits={"stack": 0.01})
    dice, silent = random.Random(5), 0
    for number in range(15):
        seconds = 0.08 + dice.uniform(-0.015, 0.015)
        try:
            assert ward.call(plan, "jobs:sleep", seconds, options=CallOptions(silence=0.08)) == seconds
        except CallSilent:
            silent += 1
        assert ward.call(plan, "echo", number) == number
    fired(silent)
    record = ward.pool.record(plan)
    assert record.generation == silent + 1 and ward.alive() == [record.pid]


# ---------------------------------------------------------------- F17: a reaper meets a caller

@pytest.mark.row("F17")
@pytest.mark.parametrize("times", [800, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.deadline(1200)])])
def test_a_reaper_that_meets_a_caller_never_costs_a_call(tmp_path, fired, times):
    clock, backend = MovableClock(), ScriptedBackend({"echo": lambda value: value})
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", idle_reap=10.0, idle_release=0.0, tick=86_400.0)
    registry = Registry(settings=settings, find=lambda group: ())
    registry.register("scripted", backend)
    plan, dice = EnvPlan(key="a", backend="scripted"), random.Random(17)
    with WorkerPool(settings, registry=registry, clock=clock) as pool, ThreadPoolExecutor(2) as threads:
        pool.call(plan, "echo", 0)
        worst = reaped = 0.0
        for number in range(times):
            clock.advance(11.0)
            before, meet = len(backend.processes), threading.Barrier(2)
            lead = dice.uniform(-0.001, 0.001)

            def reap(meet=meet, lead=lead) -> None:
                meet.wait(10)
                later(lead)
                pool.tick()

            def call(number=number, meet=meet, lead=lead) -> int:
                meet.wait(10)
                later(-lead)
                return pool.call(plan, "echo", number)

            began = time.monotonic()
            reaper, caller = threads.submit(reap), threads.submit(call)
            assert caller.result(30) == number
            worst = max(worst, time.monotonic() - began)
            reaper.result(30)
            reaped += len(backend.processes) > before
        fired(times)
        fired.took(worst)
        assert 0 < reaped < times, "only one of the two ever won"
        assert pool.record(plan).generation == len(backend.processes)


def later(seconds: float) -> None:
    """Let the other one go first by so much; nothing is waited for."""
    time.sleep(max(0.0, seconds))


@pytest.mark.row("F17")
def test_a_reaper_that_meets_a_caller_of_a_real_worker_never_costs_a_call(make_ward, fired, tmp_path):
    clock = MovableClock()
    ward = make_ward(ports={"clock": clock}, idle_reap=10.0, tick=86_400.0)
    plan, dice = ward.plan(), random.Random(3)
    with ThreadPoolExecutor(2) as threads:
        for number in range(15):
            assert ward.call(plan, "echo", number) == number
            clock.advance(100.0)
            ward.pool.tick()   # the sweep comes before the reaper
            clock.advance(11.0)
            reaper = threads.submit(lambda: (later(dice.uniform(0, 0.001)), ward.pool.tick()))
            caller = threads.submit(lambda number=number: (later(dice.uniform(0, 0.001)), ward.call(plan, "echo", -number)))
            assert caller.result(30)[1] == -number
            reaper.result(30)
            fired()
    assert ward.alive() == [ward.pool.record(plan).pid]


# ---------------------------------------------------------------- F18: everything stands still

STOPPED = """
import threading, time
pool = make_pool(tick=0.2, birth=1.5, call_silence=1.5, ping=1.0, ping_idle=0.5, idle_release=0.5, idle_reap=float(arguments[0]))
idle, busy = make_plan("idle"), make_plan("busy")
born = [pool.call(plan, "jobs:pid") for plan in (idle, busy)]
answer = []
thread = threading.Thread(target=lambda: answer.append(pool.call(busy, "jobs:report_slowly", 20, 0.1)))
thread.start()
while not pool.record(busy).calls and pool.seats()[1].env.row.activity.running is None:
    time.sleep(0.005)
tell(workers=born, ready=True)
thread.join()
tell(workers=born, answer=answer, generations=[pool.record(plan).generation if pool.record(plan) else 0 for plan in (idle, busy)],
     still=[pool.call(idle, "jobs:pid"), pool.call(busy, "jobs:pid")], ended=True)
pool.close()
"""


@pytest.mark.row("F18")
@pytest.mark.parametrize("seconds", [5, pytest.param(90, marks=[pytest.mark.long, pytest.mark.deadline(240)])])
def test_a_machine_that_slept_kills_nothing_when_it_wakes(tmp_path, fired, eventually, seconds):
    import os
    import signal

    host = Host(STOPPED, tmp_path, 5.0)
    try:
        eventually(lambda: (host.told or {}).get("ready") or host.popen.poll() is not None, 30, "two workers live, one is busy")
        everybody = [host.popen.pid, *host.told["workers"]]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)   # the length of the stop is what is tried; nothing is waited for
        for pid in reversed(everybody):
            os.kill(pid, signal.SIGCONT)
        fired(len(everybody))
        told = eventually(lambda: host.told if "ended" in host.told else host.popen.poll(), 30, "the host went on")
        assert isinstance(told, dict), host.said()
        assert told["answer"] == [20] and told["generations"] == [1, 1] and told["still"] == told["workers"], (told, host.said())
        assert host.popen.wait(20) == 0
    finally:
        host.close()


@pytest.mark.row("F18")
@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_wall_clock_that_jumps_kills_nothing(make_ward, monkeypatch, fired, jump):
    ward = make_ward(tick=0.05, call_silence=2.0, birth=5.0, idle_reap=30.0, ping_idle=20.0)
    plan, real, asked = ward.plan(), time.time, []
    pid = ward.call(plan, "me")

    def jumped() -> float:
        asked.append(1)
        return real() + jump

    monkeypatch.setattr(time, "time", jumped)
    assert ward.call(plan, "jobs:report_slowly", 8, 0.05) == 8
    ward.pool.tick()
    fired(len(asked))
    assert ward.call(plan, "me") == pid and ward.pool.record(plan).generation == 1


# ---------------------------------------------------------------- F19: a replacement in the middle of a walk

class StandIns(FakeShelf):
    """A shelf over a list that somebody walks over; it keeps what the core tells it and touches the list only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.models = ["first", "second", "third"]

    def drop_quarantine(self, env: str) -> None:
        super().drop_quarantine(env)
        self.models.clear()


@pytest.mark.row("F19")
def test_a_worker_replaced_in_the_middle_of_a_walk_over_its_stand_ins_keeps_the_list(make_ward, fired):
    from comfy_env.lifecycle import events

    shelf = StandIns()
    ward = make_ward(ports={"shelf": shelf})
    plan = ward.plan(fault={"when": "receipt", "how": "kill"})
    assert ward.call(plan, "echo", 1) == 1
    seat = ward.pool.seats()[0]
    seat.post(events.StandInsChanged(1, len(shelf.models)))
    walked = []
    for model in shelf.models:   # as a host's free_memory does, asking the worker on its way
        walked.append(model)
        with contextlib.suppress(LaneLost):   # the first one dies of it
            ward.pool.release(plan)
        assert ward.call(plan, "echo", model) == model
    fired(ward.fired())
    assert walked == shelf.models == ["first", "second", "third"] and ward.pool.record(plan).generation == 2
    assert shelf.told == [("quarantine", "a", 1)]
    seat.post(events.StandInsRegistered())
    assert shelf.told[1:] == [("drop", "a")] and shelf.models == []
