"""Rule 19: too many deaths in a short time park an environment; a call is told at once when it will be tried again."""

import os
import sys
import time

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.lifecycle import events
from comfy_env.testing.stage import LIMIT, needs
from comfy_env.values import ExitStatus
from tests.contract.worlds import over


def die(stage):
    with pytest.raises(errors.WorkerCrashed):
        stage.call("die", "exit")


def park(timed, deaths=3):
    for _ in range(deaths):
        die(timed)


@pytest.fixture
def looping(timed):
    timed.limited(crash_limit=3, crash_window=60, park=30, park_most=600)
    return timed


@needs("survives_crash")
def test_three_deaths_in_a_minute_park_the_environment_and_a_call_fails_at_once(looping, eventually):
    park(looping)
    eventually(looping.settled)
    began, spawns = time.monotonic(), looping.spy.spawns
    with pytest.raises(errors.Parked) as caught:
        looping.call("add", 1)
    assert time.monotonic() - began < 1.0 and looping.spy.spawns == spawns
    for word in ("3 deaths in 60 s", "its process ended by itself", "tried again in 30.0 s"):
        assert word in caught.value.message
    assert caught.value.hint and caught.value.story


@needs("survives_crash")
def test_after_the_pause_the_next_call_is_served(looping, eventually):
    park(looping)
    eventually(looping.settled)
    looping.clock.advance(29)
    with pytest.raises(errors.Parked, match="1.0 s"):
        looping.call("add", 1)
    looping.clock.advance(2)
    assert looping.call("add", 1, 1) == 2
    assert looping.record.generation == 4


@over("scripted")
def test_the_pause_doubles_each_time_up_to_its_most(looping, eventually):
    pauses = []
    for _ in range(7):
        while looping.seat.env.ledger.parked_until is None if looping.pool.seats() else True:
            die(looping)
        eventually(looping.settled)
        pauses.append(round(looping.seat.env.ledger.parked_until - looping.clock.now(), 3))
        looping.clock.advance(pauses[-1] + 0.1)
        looping.seat.post(events.Tick())
    assert pauses[:3] == [30, 60, 120] and pauses[-1] == 600, pauses


@over("scripted")
def test_deaths_further_apart_than_the_window_park_nothing(looping, eventually):
    for _ in range(6):
        die(looping)
        eventually(looping.settled)
        looping.clock.advance(40)
    assert looping.call("add", 1, 1) == 2


@over("scripted")
def test_a_success_longer_than_the_window_clears_the_count(looping):
    for _ in range(2):
        die(looping)
    looping.serve()
    looping.clock.advance(61)
    for _ in range(2):
        die(looping)
    assert looping.call("add", 1, 1) == 2


@over("scripted")
def test_births_that_fail_count_as_deaths(looping, eventually):
    looping.spy.lies = True
    for _ in range(3):
        with pytest.raises(errors.TransportRefused):
            looping.call("add", 1)
    eventually(looping.settled)
    with pytest.raises(errors.Parked):
        looping.call("add", 1)


@over("venv")
def test_what_waiting_would_not_mend_parks_nothing(looping, tmp_path):
    """A missing interpreter is told each time, and is used as soon as it is there."""
    python = tmp_path / "python"
    plan = EnvPlan.existing(python, "no interpreter", import_roots=looping.plan.import_roots, limits={"crash_limit": 2})
    for _ in range(5):
        with pytest.raises(errors.InterpreterMissing):
            looping.pool.call(plan, "jobs:pid")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    assert looping.pool.call(plan, "jobs:add", 1, 1) == 2


@needs("survives_crash")
def test_everybody_who_waits_when_it_parks_is_told_so(looping, eventually):
    park(looping, deaths=2)
    held = looping.held()
    waiting = [looping.start("add", number) for number in range(4)]
    eventually(lambda: len(looping.seat.env.ledger.waiting) == 4)
    end = getattr(looping.spy.processes[-1], "end", None)
    if end is not None:
        end(ExitStatus(signal=9))
    else:
        os.kill(looping.record.pid, 9)
    assert isinstance(held.exception(LIMIT), errors.WorkerCrashed)
    assert {type(call.exception(LIMIT)) for call in waiting} == {errors.Parked}


@over("scripted")
def test_who_mended_the_cause_need_not_wait(looping, eventually):
    park(looping)
    eventually(looping.settled)
    looping.seat.post(events.Unpark())
    assert looping.call("add", 1, 1) == 2
