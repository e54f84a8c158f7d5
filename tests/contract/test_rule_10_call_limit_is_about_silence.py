"""Rule 10: a call is ended for its silence, never for its length; the limit is the environment's or the call's own."""

import os
import signal

import pytest

from comfy_env import errors
from comfy_env.pool import exits
from comfy_env.testing.stage import LIMIT
from comfy_env.transport import channel
from comfy_env.transport.channel import SocketLane
from tests.contract.worlds import REAL, over


def test_a_call_has_no_limit_unless_one_is_set(timed):
    held = timed.held()
    for _ in range(10):
        timed.advance(100_000)
    assert timed.state() == "busy" and not held.done()
    timed.go()
    assert held.result(LIMIT) == "gone"


def test_a_call_silent_past_the_environments_limit_is_ended_by_name_and_the_next_is_served(timed):
    timed.limited(call_silence=600)
    held = timed.held("hold_native")
    timed.advance(599)
    assert not held.done()
    timed.advance(2)
    timed.go()
    with pytest.raises(errors.CallSilent) as caught:
        held.result(LIMIT)
    assert "600 s" in caught.value.message
    assert "COMFY_ENV_CALL_SILENCE_SECONDS" in caught.value.hint and "call_silence" in caught.value.hint
    assert (caught.value.env, caught.value.generation) == (timed.plan.key, 1)


@over("in-process", *REAL)
def test_a_silent_call_is_answered_at_its_limit_although_its_worker_has_not_ended(timed, monkeypatch):
    """A thread cannot be killed, a process takes its time: neither is waited for before the call is answered."""
    monkeypatch.setattr(exits, "EXIT_WAIT", 10 * LIMIT)
    timed.limited(call_silence=600)
    held = timed.held("hold_native")
    timed.advance(601)
    assert isinstance(held.exception(LIMIT), errors.CallSilent)
    timed.go()


@over("scripted", *REAL)
def test_the_call_after_a_silent_one_gets_the_next_generation(timed):
    timed.limited(call_silence=10)
    held = timed.held()
    timed.advance(11)
    assert isinstance(held.exception(LIMIT), errors.CallSilent)
    assert timed.call("add", 1, 1) == 2
    assert timed.record.generation == 2


@pytest.mark.parametrize(("environments", "calls", "lives"), [(10, 0, True), (0, 10, False), (10, 1000, True), (1000, 10, False)])
@over("scripted")
def test_a_calls_own_limit_goes_before_its_environments(timed, eventually, environments, calls, lives):
    timed.limited(call_silence=environments)
    held = timed.start("hold", str(timed.folder), silence=calls)
    eventually(lambda: timed.pool.seats() and timed.state() == "busy" and timed.backend.open_calls)
    timed.advance(11)
    assert held.done() is not lives or not lives
    timed.go()
    assert (held.exception(LIMIT) is None) is lives


@over("in-process", *REAL)
def test_a_call_that_reports_progress_is_never_ended_by_a_clock(timed):
    """Ten reports, 50 s apart by the pool's clock, at a limit of 60 s."""
    timed.limited(call_silence=60)
    seen = []

    def hook(progress):
        seen.append(progress.value)
        timed.advance(50)

    assert timed.run("jobs:progress", 10, on_progress=hook) == 10
    assert len(seen) == 10 and timed.record.generation == 1


@over("in-process", *REAL)
def test_the_time_the_host_takes_for_a_callback_is_not_the_workers_silence(timed):
    timed.limited(call_silence=60)
    assert timed.run("jobs:call_back", "slow", callbacks={"slow": lambda: timed.advance(10_000) or "done"}) == "done"
    assert timed.record.generation == 1


@over(*REAL)
def test_after_a_callback_the_silence_counts_again(timed, eventually):
    timed.limited(call_silence=60)
    call = timed.begin("jobs:call_back_then_sleep", "note", callbacks={"note": lambda: timed.advance(100)})
    eventually(lambda: timed.pool.seats() and timed.state() == "busy" and not timed.seat.env.row.activity.asking)
    timed.advance(61)
    assert isinstance(call.exception(LIMIT), errors.CallSilent)


@over("in-process", *REAL)
def test_the_time_the_host_takes_to_write_an_argument_is_not_the_workers_silence(timed):
    timed.limited(call_silence=60)

    class Slow:
        def __reduce__(self):
            timed.advance(10_000)
            return int, ("3",)

    slow = Slow()
    timed.serve()
    assert timed.run("builtins:callable", lambda: slow) is True
    assert timed.record.generation == 1


@pytest.mark.parametrize("way", ["out", "in"])
@over(*REAL)
def test_a_large_value_that_is_on_its_way_is_no_silence(timed, monkeypatch, way):
    timed.limited(call_silence=60)
    timed.serve()
    verb = {"out": "_send_some", "in": "_read"}[way]
    real, pieces = getattr(SocketLane, verb), []

    def takes_its_time(lane, what, *more):
        piece = [memoryview(what[0])[:2**19]] if way == "out" else what[:2**19]
        pieces.append(real(lane, piece, *more))
        timed.advance(20)
        return pieces[-1]

    monkeypatch.setattr(channel, "PULSE", 0.0)
    monkeypatch.setattr(SocketLane, verb, takes_its_time)
    assert len(timed.run(*{"out": ("jobs:echo", "x" * 2**23), "in": ("jobs:much_text", 2**23)}[way])) == 2**23
    assert len(pieces) > 6 and timed.record.generation == 1


@over(*REAL)
def test_a_worker_that_takes_no_more_of_an_argument_is_silent(timed, eventually):
    timed.limited(call_silence=60)
    pid = timed.run("jobs:pid")
    os.kill(pid, signal.SIGSTOP)
    call = timed.begin("jobs:echo", "x" * 2**24)
    eventually(lambda: timed.state() == "busy" and not timed.seat.env.row.activity.asking)
    for _ in range(4):
        timed.advance(61)
    assert isinstance(call.exception(LIMIT), errors.CallSilent)


@over("scripted")
def test_each_report_starts_the_limit_anew(timed, eventually):
    timed.limited(call_silence=60)
    held = timed.held()
    for value in range(8):
        timed.advance(59)
        timed.backend.open_calls[0].report(value, 8)
        eventually(lambda: timed.seat.env.row.activity.since == timed.clock.now())
    timed.advance(61)
    assert isinstance(held.exception(LIMIT), errors.CallSilent)


@over(*REAL)
def test_a_silent_call_is_told_with_the_stack_it_was_in(stage):
    with pytest.raises(errors.CallSilent) as caught:
        stage.run("jobs:sleep", 600, silence=0.4)
    assert "jobs.py" in caught.value.stack and "in sleep" in caught.value.stack
    assert "jobs.py" in str(caught.value)


@over(*REAL)
def test_a_call_silent_in_native_code_that_holds_the_gil_shows_its_stack_too(stage):
    with pytest.raises(errors.CallSilent) as caught:
        stage.run("jobs:hold_the_gil", 600, silence=0.4)
    assert "in hold_the_gil" in caught.value.stack
