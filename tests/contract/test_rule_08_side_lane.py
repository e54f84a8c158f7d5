"""Rule 8: the side lane answers beside whatever runs, touches no data, and is no evidence of health."""

import os
import signal
import threading
import time

import pytest

from comfy_env import errors
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import REAL, over, stop


def test_a_busy_worker_answers_on_its_side_lane(stage):
    held = stage.held()
    assert stage.pool.ask_aside(stage.plan, "ping") is not None
    assert stage.pool.ask_aside(stage.plan, "fingerprint", {"pack": "p", "class": "c"}) == {"absent": True}
    stage.go()
    assert held.result(LIMIT) == "gone"


def test_a_question_the_side_lane_does_not_know_is_refused_by_name(stage):
    stage.serve()
    with pytest.raises(errors.PlanError, match="no question of the side lane"):
        stage.pool.ask_aside(stage.plan, "run", {"target": "os:getcwd"})


@over("scripted")
def test_a_side_lane_that_did_not_answer_within_a_second_rests_five(timed, caplog):
    timed.limited(side_reply=0.05)
    timed.serve()
    timed.backend.mute = True
    with caplog.at_level("WARNING"):
        assert timed.pool.ask_aside(timed.plan, "fingerprint", {"pack": "p", "class": "Blur", "node_id": "12"}) is None
    assert all(word in caplog.text for word in ("contract", "fingerprint", "Blur", "12", "rests for 5 s", "after 0.0"))
    timed.backend.mute = False
    asked = len(timed.spy.lanes[0].side.sent)
    for _ in range(3):
        timed.clock.advance(1.6)
        assert timed.pool.ask_aside(timed.plan, "ping") is None, "it rests"
    assert len(timed.spy.lanes[0].side.sent) == asked, "nothing is sent to a lane that rests"
    timed.clock.advance(0.3)
    assert timed.pool.ask_aside(timed.plan, "ping") is not None


@over("scripted")
def test_a_late_answer_of_the_side_lane_never_answers_the_next_question(stage):
    stage.limited(side_reply=0.05, side_rest=0)
    stage.serve()
    stage.backend.mute = True
    assert stage.pool.ask_aside(stage.plan, "ping") is None
    stage.backend.mute = False
    lane = stage.spy.lanes[0].side
    lane.put(*stage.backend._side(lane.sent[-1]._replace(kind=44)))
    assert stage.pool.ask_aside(stage.plan, "ping") == {"absent": True}
    assert stage.seat.worker.session.late == 1


@over(*REAL)
def test_a_stopped_worker_costs_who_asks_aside_a_second_once(stage, load, record_property):
    stage.limited(side_reply=0.3, side_rest=60)
    pid = stage.call("whoami")["pid"]
    stop(pid)
    began = time.monotonic()
    assert [stage.pool.ask_aside(stage.plan, "ping") for _ in range(50)] == [None] * 50
    took = time.monotonic() - began
    record_property("50 questions to a stopped worker (s)", round(took, 4))
    assert took < load(0.6)
    os.kill(pid, signal.SIGCONT)


@over(*REAL)
def test_an_interrupt_reaches_a_worker_whose_side_lane_rests(stage, eventually):
    stage.limited(side_reply=0.05, side_rest=600)
    stage.serve()
    stage.seat.worker.side_rests_until = stage.seat.clock() + 600
    call = stage.begin("jobs:spin")
    eventually(lambda: stage.pool.interrupt(stage.plan))
    assert isinstance(call.exception(LIMIT), errors.Interrupted)
    assert stage.record.generation == 1


@over("in-process", *REAL)
def test_a_question_aside_imports_nothing_and_runs_on_another_thread_than_the_calls(stage):
    stage.serve()
    before = stage.run("jobs:modules")
    assert stage.pool.ask_aside(stage.plan, "refresh_input_types", {"pack": "xml.dom.minidom", "class": "Document"}) == {"absent": True}
    assert "xml.dom.minidom" not in set(stage.run("jobs:modules")) - set(before)
    assert "comfy_env side lane" in stage.run("jobs:threads")


def test_an_answer_aside_is_no_sign_of_life_of_the_call(timed, eventually):
    """The call is silent however often the side lane answers meanwhile."""
    held = timed.held()
    silent_since = timed.seat.env.row.activity.since
    timed.clock.advance(30)
    assert timed.pool.ask_aside(timed.plan, "ping") is not None
    assert timed.seat.env.row.activity.since == silent_since
    timed.go()
    held.result(LIMIT)


def test_many_threads_may_ask_aside_at_once(stage):
    stage.serve()
    gate = threading.Barrier(8)

    def ask():
        gate.wait(LIMIT)
        return [stage.pool.ask_aside(stage.plan, "ping") is not None for _ in range(10)]

    answers = [stage.on_a_thread(ask) for _ in range(8)]
    assert all(all(future.result(LIMIT)) for future in answers)
