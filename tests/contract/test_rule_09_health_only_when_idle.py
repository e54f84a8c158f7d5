"""Rule 9: one ping on the main lane before the next call of a worker that was idle long; a busy one is never pinged."""

import pytest

from comfy_env import errors
from comfy_env.testing.stage import LIMIT
from comfy_env.values import ExitStatus
from comfy_env.worker.wire.kinds import Kind
from tests.contract.worlds import REAL, over, stop


def pings(stage):
    return [frame for frame in stage.spy.lanes[-1].main.sent if frame.kind == Kind.PING]


def told(stage, words):
    return any(words in line for line in stage.pool.story(stage.plan))


def test_a_worker_idle_for_a_minute_is_pinged_before_its_next_call(timed):
    timed.serve()
    timed.clock.advance(timed.pool.settings.ping_idle + 1)
    assert timed.call("add", 1, 1) == 2
    assert told(timed, "answered a ping")
    assert timed.record.generation == 1


def test_a_worker_idle_for_less_is_not_pinged(timed):
    timed.serve()
    timed.clock.advance(timed.pool.settings.ping_idle - 1)
    assert timed.call("add", 1, 1) == 2
    assert not told(timed, "ping")


def test_idle_time_alone_pings_nobody(timed):
    timed.serve()
    for _ in range(5):
        timed.advance(100)
    assert not told(timed, "ping")


def test_a_busy_worker_is_never_pinged_however_long_it_computes(timed):
    held = timed.held()
    for _ in range(5):
        timed.advance(1000)
    waiting = timed.start("add", 1)
    timed.advance(1000)
    assert timed.state() == "busy" and not told(timed, "ping")
    timed.go()
    assert (held.result(LIMIT), waiting.result(LIMIT)) == ("gone", 1)
    assert not told(timed, "ping"), "whoever waited comes right after a call, which was a sign of health"


@over("scripted")
def test_there_is_one_ping_and_only_before_a_call(timed):
    timed.serve()
    for _ in range(3):
        timed.advance(200)
        assert timed.call("add", 1, 1) == 2
    assert len(pings(timed)) == 3


@over("scripted")
@pytest.mark.parametrize("how", ["refuses", "is silent", "dies"])
def test_a_failed_ping_replaces_the_worker_before_the_call_and_nobody_notices(timed, eventually, how):
    timed.serve()
    process = timed.backend.process
    real, lane = timed.backend._main, timed.spy.lanes[0].main

    def sick(frame):
        if frame.kind != Kind.PING:
            return real(process, frame)
        if how == "dies":
            process.end(ExitStatus(signal=9))
        return [timed.backend._frame(Kind.REFUSED, frame, {"error": "decode", "text": "sick"})] if how == "refuses" else []

    lane._answer = sick
    timed.clock.advance(100)
    call = timed.start("add", 20, 22)
    if how == "is silent":
        eventually(lambda: timed.state() == "pinging")
        timed.advance(timed.pool.settings.ping + 0.5)
    assert call.result(LIMIT) == 42
    assert timed.record.generation == 2


@over(*REAL)
def test_a_stopped_worker_fails_its_ping_and_is_replaced_unseen(timed, eventually):
    pid = timed.call("whoami")["pid"]
    stop(pid)
    timed.clock.advance(timed.pool.settings.ping_idle + 1)
    call = timed.start("whoami")
    eventually(lambda: timed.state() == "pinging")
    timed.advance(timed.pool.settings.ping + 1)
    timed.advance(1)  # it shows no stack either
    assert call.result(LIMIT)["pid"] != pid
    assert timed.record.generation == 2


@over(*REAL)
def test_a_side_lane_that_answers_does_not_save_a_worker_whose_main_lane_is_stuck(timed, eventually):
    """A worker stuck in a call's leftovers breathes on the side lane; only the main lane's pong is health."""
    timed.serve()
    session = timed.seat.worker.session

    def stuck(kind, *more):
        raise errors.LaneLost("the worker reads no more")

    session.command = stuck
    assert timed.pool.ask_aside(timed.plan, "ping") is not None
    timed.clock.advance(100)
    assert timed.call("add", 1, 1) == 2
    assert timed.record.generation == 2
