"""Rule 12: an idle worker is asked to release; growth of what it holds is believed at once, only a receipt shrinks it."""

import threading
from dataclasses import replace

import pytest

from comfy_env.lifecycle import events
from comfy_env.testing.stage import LIMIT


def releases(stage):
    return stage.spy.told.count("release")


def rests(stage):
    return stage.state() == "ready"


def test_a_worker_idle_for_a_minute_is_asked_to_release_everything(timed, eventually):
    timed.worker_grows(1000)
    assert timed.record.held == 1000
    timed.advance(timed.pool.settings.idle_release - 1)
    assert releases(timed) == 0
    timed.advance(2)
    eventually(lambda: timed.record.held == 0 and rests(timed))
    assert releases(timed) == 1


def test_a_worker_that_gave_everything_back_is_not_asked_again_until_it_ran_again(timed, eventually):
    timed.worker_grows(1000)
    timed.advance(61)
    eventually(lambda: timed.record.held == 0 and rests(timed))
    for _ in range(5):
        timed.advance(61)
    eventually(lambda: rests(timed))
    assert releases(timed) == 1
    timed.serve()
    timed.advance(61)
    eventually(lambda: releases(timed) == 2 and rests(timed))


def test_a_busy_worker_is_not_asked(timed):
    held = timed.held()
    for _ in range(5):
        timed.advance(100)
    assert releases(timed) == 0
    timed.go()
    assert held.result(LIMIT) == "gone"


def test_on_a_tight_card_a_worker_releases_as_soon_as_its_prompt_is_over(timed, eventually):
    timed.plan = replace(timed.plan, device="cuda:0")
    timed.memory.short.add("cuda:0")
    timed.prompt.id = "prompt-1"
    timed.worker_grows(1000)
    timed.advance(1)
    assert releases(timed) == 0, "its prompt still runs"
    timed.prompt.id = ""
    timed.advance(1)
    eventually(lambda: timed.record.held == 0 and rests(timed))
    assert releases(timed) == 1


@pytest.mark.parametrize("news", [10, 500, 999])
def test_only_a_receipt_shrinks_what_a_worker_is_believed_to_hold(timed, news):
    timed.worker_grows(1000)
    timed.seat.post(events.HeldGrew(1, news))
    assert timed.record.held == 1000
    timed.seat.post(events.HeldGrew(1, 5000))
    assert timed.record.held == 5000
    assert timed.pool.release(timed.plan).held == 0
    assert timed.record.held == 0


def test_a_release_that_fails_leaves_the_belief_and_the_worker(timed, eventually):
    timed.worker_grows(1000)
    timed.spy.after["release"] = lambda receipt: None
    timed.advance(61)
    eventually(lambda: releases(timed) == 1 and rests(timed))
    assert timed.record.held == 1000 and timed.record.generation == 1
    assert any("the release failed" in line for line in timed.pool.story(timed.plan))


def test_a_release_that_takes_too_long_ends_the_worker_and_the_next_call_is_served(timed, eventually):
    gate, reached = threading.Event(), threading.Event()

    def hang(process):
        reached.set()
        gate.wait(LIMIT)

    timed.worker_grows(1000)
    timed.spy.before["release"] = hang
    timed.advance(61)
    assert reached.wait(LIMIT) and timed.state() == "releasing"
    waiting = timed.start("add", 1)
    timed.advance(timed.pool.settings.release + 1)
    timed.spy.before.clear()
    gate.set()
    assert waiting.result(LIMIT) == 1
    assert timed.record.generation == 2


def test_the_sweep_can_be_turned_off(timed):
    timed.limited(idle_release=0, idle_reap=0)
    timed.worker_grows(1000)
    for _ in range(5):
        timed.advance(10_000)
    assert releases(timed) == 0 and timed.record.held == 1000


def test_the_pool_looks_by_itself_releases_an_idle_worker_and_ends_it_later(stage, eventually):
    """Nobody ticks here: rules 12 and 13 as a user meets them."""
    stage.limited(idle_release=0.2, idle_reap=0.5)
    stage.serve()
    eventually(lambda: stage.spy.told.count("release") == 1, what="it was asked to release")
    eventually(stage.settled, what="it was ended")
    assert any("it was idle and held nothing" in line for line in stage.pool.story(stage.plan))
    assert stage.call("add", 1, 1) == 2


def test_a_memory_port_that_raises_keeps_no_limit_from_being_judged(timed, eventually):
    timed.worker_grows(1000)
    timed.memory.tight = lambda device: {}["no such card"]
    timed.advance(61)
    eventually(lambda: timed.record.held == 0)
