"""Rule 24: after close nothing spawns, whoever asks and whatever was under way."""

import threading
import time
from dataclasses import replace

import pytest

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.pool import births, journal
from comfy_env.testing.audit import wait_until
from comfy_env.testing.stage import LIMIT


def test_a_call_after_close_is_refused_by_name_and_close_may_come_again(stage):
    stage.serve()
    stage.pool.close()
    for plan in (stage.plan, stage.other("never called")):
        with pytest.raises(errors.PoolClosed):
            stage.call("add", 1, plan=plan)
    stage.pool.close()
    stage.pool.tick()
    assert stage.spy.spawns == 1 and stage.pool.records() == []


def test_close_during_a_birth_answers_who_waits_and_ends_what_was_started(stage, eventually):
    gate = threading.Event()
    stage.spy.before["verify"] = lambda process: gate.wait(LIMIT)
    calls = [stage.start("add", number) for number in range(3)]
    eventually(lambda: stage.pool.seats() and len(stage.seat.env.ledger.waiting) == 3 and stage.state() == "proving")
    closer = stage.on_a_thread(stage.pool.close)
    assert {type(call.exception(LIMIT)) for call in calls} == {errors.PoolClosed}
    gate.set()
    closer.result(LIMIT)
    assert stage.spy.processes[0].exit_status() is not None
    assert stage.spy.spawns == 1


def test_close_returns_when_what_a_backend_was_starting_has_been_ended(stage):
    gate, reached = threading.Event(), threading.Event()
    stage.spy.before["spawn"] = lambda launch: reached.set() or gate.wait(LIMIT)
    call = stage.start("add", 1)
    assert reached.wait(LIMIT)
    closer = stage.on_a_thread(stage.pool.close)
    assert isinstance(call.exception(LIMIT), errors.PoolClosed)
    with pytest.raises(TimeoutError):
        closer.result(0.2)
    gate.set()
    closer.result(LIMIT)
    assert all(process.exit_status() is not None for process in stage.spy.processes)
    assert not [thread for thread in threading.enumerate() if thread.name == f"comfy-env {stage.plan.key}#1"]


def test_close_waits_for_a_backend_that_hangs_no_longer_than_its_deadline(stage, load):
    stage.pool.settings = stage.pool._house.settings = replace(stage.pool.settings, shutdown=0.3)
    gate, reached = threading.Event(), threading.Event()
    stage.spy.before["spawn"] = lambda launch: reached.set() or gate.wait(LIMIT)
    call = stage.start("add", 1)
    assert reached.wait(LIMIT)
    began = time.monotonic()
    stage.pool.close()
    assert time.monotonic() - began < load(2.0)
    assert isinstance(call.exception(LIMIT), errors.PoolClosed)
    gate.set()
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == f"comfy-env {stage.plan.key}#1"], LIMIT)
    assert all(process.exit_status() is not None for process in stage.spy.processes)


def test_a_birth_that_nobody_wants_any_more_starts_no_process(stage, monkeypatch):
    """The pool was closed while the birth was prepared."""
    real, gate, reached = births._prepare, threading.Event(), threading.Event()

    def prepared(*given):
        worker = real(*given)
        reached.set()
        assert gate.wait(LIMIT)
        return worker

    monkeypatch.setattr(births, "_prepare", prepared)
    call = stage.start("add", 1)
    assert reached.wait(LIMIT)
    closer = stage.on_a_thread(stage.pool.close)
    assert isinstance(call.exception(LIMIT), errors.PoolClosed)
    gate.set()
    closer.result(LIMIT)
    assert stage.spy.spawns == 0


def test_an_interpreter_that_starts_no_thread_any_more_closes_its_pool_all_the_same(stage, settings, monkeypatch):
    """As CPython 3.12 at exit: nothing of the journal may keep the workers from being ended and the run folder from being removed."""
    stage.serve()
    time.sleep(2 * journal.LEAST_PAUSE)   # the journal of the birth is written, so that the next change wants another timer

    def refuses(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        stage.pool.close()
    assert stage.spy.processes[0].exit_status() is not None
    assert not list(settings.runtime_folder.glob("host-*"))


def test_close_while_a_worker_is_being_ended_starts_no_successor(stage, eventually):
    gate, reached = threading.Event(), threading.Event()
    stage.serve()
    stage.spy.before["kill"] = lambda process: reached.set() or gate.wait(LIMIT)
    stage.on_a_thread(stage.pool.kill, stage.plan)
    assert reached.wait(LIMIT)
    waiting = stage.start("add", 1)
    eventually(lambda: len(stage.seat.env.ledger.waiting) == 1)
    closer = stage.on_a_thread(stage.pool.close)
    assert isinstance(waiting.exception(LIMIT), errors.PoolClosed)
    gate.set()
    closer.result(LIMIT)
    assert stage.spy.spawns == 1


@pytest.mark.parametrize("event", [events.SourceChanged(), events.EnvChanged(), events.Unpark(), events.Tick(), events.CallWanted(10**9)])
def test_no_event_opens_a_closed_environment(stage, event):
    stage.serve()
    stage.pool.close()
    stage.seat.post(event)
    assert stage.spy.spawns == 1 and stage.state() == "gone"


def test_32_threads_that_call_while_the_pool_closes_all_get_a_result_or_the_refusal(stage):
    stage.serve()
    gate = threading.Barrier(33)

    def ask(number):
        gate.wait(LIMIT)
        try:
            return stage.pool.call(stage.plan, "contract_probe:add", number)
        except (errors.PoolClosed, errors.Interrupted) as refusal:
            return refusal

    callers = [stage.on_a_thread(ask, number) for number in range(32)]
    gate.wait(LIMIT)
    stage.pool.close()
    answers = [caller.result(LIMIT) for caller in callers]
    assert all(answer == number or isinstance(answer, Exception) for number, answer in enumerate(answers))
    assert stage.spy.spawns == 1


def test_a_call_that_heeds_its_interrupt_ends_before_the_deadline_of_the_close(stage):
    stage.limited(shutdown=20)
    held = stage.held()
    stage.pool.close()
    assert isinstance(held.exception(LIMIT), errors.Interrupted | errors.PoolClosed)
    assert stage.spy.processes[0].exit_status() is not None
