"""Where its limits ask for it, a worker that served enough or grew too large is replaced, and no call is lost to that."""

from comfy_env.lifecycle import events
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import REAL, over


def test_a_worker_that_served_its_calls_is_replaced_and_no_call_fails(stage):
    stage.limited(max_calls=3)
    generations = []
    for number in range(8):
        assert stage.call("add", number, 1) == number + 1
        generations.append(stage.seat.env.ledger.generation)
    assert generations == [1, 1, 1, 2, 2, 2, 3, 3]
    assert any("as many calls" in line for line in stage.pool.story(stage.plan))


def test_callers_that_wait_are_served_by_the_next_one(stage, eventually):
    stage.limited(max_calls=1)
    held = stage.held()
    waiting = [stage.start("add", number) for number in range(3)]
    eventually(lambda: len(stage.seat.env.ledger.waiting) == 3)
    stage.go()
    assert held.result(LIMIT) == "gone"
    assert [call.result(LIMIT) for call in waiting] == [0, 1, 2]
    assert stage.seat.env.ledger.generation == 4


def test_a_worker_that_holds_memory_is_not_replaced_until_it_gave_it_back(timed, eventually):
    timed.limited(max_calls=2)
    timed.worker_grows(1000)
    timed.serve()
    assert timed.record.generation == 1
    timed.advance(timed.pool.settings.idle_release + 1)
    eventually(timed.settled)
    assert timed.call("add", 1, 1) == 2
    assert timed.seat.env.ledger.generation == 2


@over(*REAL)
def test_a_worker_that_takes_more_memory_than_it_may_is_replaced_when_it_is_idle(timed, eventually):
    timed.limited(max_rss=1)
    pid = timed.call("whoami")["pid"]
    timed.advance(0.1)
    eventually(timed.settled)
    assert timed.call("whoami")["pid"] != pid and timed.record.generation == 2


@over(*REAL)
def test_a_worker_within_its_limit_stays(timed):
    timed.limited(max_rss=100_000)
    timed.serve()
    timed.advance(0.1)
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 1


@over("scripted")
def test_a_worker_that_outgrew_its_limit_stays_while_the_host_looks_at_what_it_made(timed, monkeypatch):
    monkeypatch.setattr("comfy_env.pool.ticking._tell_holds", lambda house, seat: None)
    timed.serve()
    timed.seat.post(events.HostHoldsChanged(1, 1, 0))
    timed.seat.post(events.Outgrown(1, 2**40))
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 1
    timed.seat.post(events.HostHoldsChanged(1, 0, 0))
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 2
