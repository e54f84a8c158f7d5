"""Rule 13: an idle worker that holds nothing and that nothing needs is ended; its judge holds the lane from judging to kill."""

import gc
import random
import threading
import time

import pytest

from comfy_env.lifecycle import events
from comfy_env.pool.rereading import Reread
from comfy_env.settings import Settings
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import REAL, over

VARIABLE = "COMFY_ENV_IDLE_REAP_SECONDS"


@pytest.fixture
def settings(settings, monkeypatch):
    """The same settings from the environment, as a pool has them that is made without any."""
    for name in ("runtime_folder", "log_folder", "envs_folder", "birth", "crash_limit"):
        monkeypatch.setenv(Settings.__dataclass_fields__[name].metadata["variable"], str(getattr(settings, name)))
    return Settings.read()


def idle_past_the_reaper(timed):
    """Let the sweep come first, then the reaper's own time."""
    timed.advance(timed.pool.settings.idle_reap + 1)
    timed.advance(1)


def reaped(timed):
    return timed.settled()


def test_a_worker_idle_for_half_an_hour_is_ended_and_the_next_call_gets_a_new_one(timed, eventually):
    timed.serve()
    timed.advance(timed.pool.settings.idle_reap - 1)
    eventually(lambda: timed.state() == "ready")
    assert timed.record is not None
    idle_past_the_reaper(timed)
    eventually(lambda: timed.pool.tick() or reaped(timed))
    assert any("it was idle and held nothing" in line for line in timed.pool.story(timed.plan))
    assert timed.call("add", 1, 1) == 2
    assert timed.record.generation == 2


NEEDS = {
    "it holds memory": lambda timed: timed.spy.after.__setitem__("release", lambda receipt: None) or timed.worker_grows(1000),
    "a stand-in is registered": lambda timed: timed.seat.post(events.StandInsChanged(1, 1)),
    "a tensor of it is alive in the host": lambda timed: timed.seat.post(events.HostHoldsChanged(1, 1, 0)),
    "its prompt runs": lambda timed: (setattr(timed.prompt, "id", "p"), timed.pool.tick(), timed.serve()),
}


@over("scripted")
@pytest.mark.parametrize("need", NEEDS)
def test_a_worker_that_something_needs_is_not_ended(timed, monkeypatch, need):
    monkeypatch.setattr("comfy_env.pool.ticking._tell_holds", lambda house, seat: None)
    timed.limited(idle_release=0)
    timed.serve()
    NEEDS[need](timed)
    for _ in range(5):
        timed.advance(10_000)
    assert timed.record is not None and timed.record.generation == 1 and timed.state() == "ready"


@over("in-process", *REAL)
def test_a_worker_whose_object_the_host_holds_is_not_ended_until_it_lets_go(timed, eventually):
    counter = timed.run("jobs:make_counter")
    assert timed.run("jobs:count", counter) == 1
    idle_past_the_reaper(timed)
    eventually(lambda: timed.state() == "ready")
    assert timed.run("jobs:count", counter) == 2 and timed.record.generation == 1
    del counter
    gc.collect()
    idle_past_the_reaper(timed)
    eventually(lambda: timed.pool.tick() or reaped(timed))


def test_the_reaper_can_be_turned_off(timed):
    timed.limited(idle_reap=0, idle_release=0)
    timed.serve()
    for _ in range(3):
        timed.advance(1_000_000)
    assert timed.state() == "ready"


def test_the_reapers_time_is_read_anew_at_every_tick(timed, monkeypatch, eventually):
    timed.limited(idle_release=0)
    timed.serve()
    timed.advance(100)
    assert timed.state() == "ready"
    monkeypatch.setenv(VARIABLE, "50")
    timed.pool.tick()
    eventually(lambda: reaped(timed))
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 2


@over("scripted")
def test_the_default_holds_again_when_the_variable_is_gone(timed, monkeypatch):
    timed.limited(idle_release=0)
    timed.serve()
    monkeypatch.setenv(VARIABLE, "50")
    timed.pool.tick()
    assert timed.seat.env.limits.idle_reap == 50
    monkeypatch.delenv(VARIABLE)
    timed.advance(1000)
    assert timed.state() == "ready" and timed.seat.env.limits.idle_reap == Settings().idle_reap


@over("scripted")
def test_a_plans_own_time_is_not_the_environments_to_change(timed, monkeypatch):
    timed.limited(idle_release=0, idle_reap=5000)
    timed.serve()
    monkeypatch.setenv(VARIABLE, "50")
    timed.advance(1000)
    assert timed.state() == "ready"


@over("scripted")
def test_a_time_that_cannot_be_used_changes_nothing_and_is_told_once_by_name(timed, monkeypatch, caplog, eventually):
    timed.limited(idle_release=0)
    timed.serve()
    monkeypatch.setenv(VARIABLE, "200")
    timed.pool.tick()
    monkeypatch.setenv(VARIABLE, "soon")
    for _ in range(3):
        timed.advance(60)
    told = [record.getMessage() for record in caplog.records if VARIABLE in record.getMessage()]
    assert len(told) == 1 and "'soon'" in told[0] and "200" in told[0]
    assert timed.state() == "ready"
    timed.advance(30)
    eventually(lambda: reaped(timed))


def test_settings_given_in_python_are_not_the_environments_to_change(monkeypatch):
    monkeypatch.setenv(VARIABLE, "50")
    assert Reread(Settings(), "idle_reap").look() == 1800
    assert Reread(Settings.read(), "idle_reap").look() == 50


@over("scripted")
def test_a_call_that_comes_while_the_reaper_strikes_gets_the_next_worker(timed, eventually):
    """The judgement closes the lane in the same step: whoever comes then waits for the next generation."""
    timed.limited(idle_release=0)
    timed.serve()
    gate, reached = threading.Event(), threading.Event()
    timed.spy.before["kill"] = lambda process: reached.set() or gate.wait(LIMIT)
    idle_past_the_reaper(timed)
    assert reached.wait(LIMIT)
    calls = [timed.start("add", number) for number in range(4)]
    eventually(lambda: len(timed.seat.env.ledger.waiting) == 4, what="nobody gets a lane whose worker is being ended")
    gate.set()
    assert [call.result(LIMIT) for call in calls] == list(range(4))
    assert timed.record.generation == 2


@over("scripted")
@pytest.mark.deadline(240)
def test_2000_races_of_calls_against_the_reaper_lose_no_call(timed, record_property):
    """A call and the reaper's judgement come at the same moment, in either order; every call is answered."""
    long = dict.fromkeys(("spawn", "birth", "verify", "kill", "ping_idle"), 80_000)
    timed.limited(idle_release=0, idle_reap=5, stack=0, **long)
    rng, races, gate = random.Random(13), 2_000, threading.Barrier(2)

    def reap():
        mine = random.Random(14)
        for _ in range(races):
            gate.wait(LIMIT)
            time.sleep(mine.random() * 0.0003)
            timed.clock.advance(6)
            for seat in timed.pool.seats():
                seat.post(events.Tick())

    reaper = timed.on_a_thread(reap)
    wrong = []
    for number in range(races):
        gate.wait(LIMIT)
        time.sleep(rng.random() * 0.0003)
        if timed.pool.call(timed.plan, "contract_probe:add", number, 1) != number + 1:
            wrong.append(number)
    reaper.result(LIMIT)
    record_property("races, workers", f"{races}, {timed.seat.env.ledger.generation}")
    assert not wrong
    assert races / 10 < timed.seat.env.ledger.generation < races, "each of the two won some of the races"
