"""Rules 7 to 11: one call at a time, health checks when idle only, silence, interrupts."""

import pytest

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.record import State
from tests.lifecycle.life import RETURNED, SEGFAULT, Life


def test_a_warm_worker_is_offered_to_the_next_call_at_once():
    life = Life().born()
    ticket = life.want()
    assert life.effects == (f.Dispatch(1, ticket),) and life.memory.started == {1}


def test_an_asker_that_has_seen_the_worker_takes_its_free_lane_without_an_offer():
    life = Life().born()
    life.post(e.CallWanted(7, 3.0, seen=1))
    activity = life.env.row.activity
    assert life.effects == () and life.state is State.BUSY
    assert (activity.running, activity.offered, activity.silence, activity.calls) == (7, None, 3.0, 2)
    assert life.end(7).effects == (f.Settle(1, 7, RETURNED),)


def test_an_asker_that_has_seen_another_worker_is_offered_the_lane():
    life = Life().born()
    life.dies().gone()
    life.born()
    life.post(e.CallWanted(7, seen=1))
    assert life.effects == (f.Dispatch(2, 7),) and life.state is State.READY


def test_an_asker_that_has_seen_the_worker_waits_behind_those_who_came_before():
    life = Life().born()
    first = life.want()   # offered, and not yet accepted
    life.post(e.CallWanted(7, seen=1)).post(e.CallWanted(8, seen=1))
    assert life.effects == () and life.env.row.activity.offered == first
    assert life.accept(first).end(first).one(f.Dispatch).ticket == 7


def test_calls_take_turns_in_the_order_they_came():
    life = Life()
    first = life.busy()
    second, third = life.want(), life.want()
    assert life.effects == ()
    life.end(first)
    assert life.effects == (f.Settle(1, first, RETURNED), f.Dispatch(1, second))
    life.accept(second).end(second)
    assert life.one(f.Dispatch).ticket == third


def test_an_asker_that_leaves_between_offer_and_acceptance_hands_the_lane_on():
    life = Life().born()
    first, second = life.want(), life.want()
    life.post(e.CallWithdrawn(first))
    assert life.settled[first].kind is Kind.WITHDRAWN and life.one(f.Dispatch).ticket == second
    assert life.accept(first).state is State.READY, "the one who left cannot take it any more"


def test_a_waiting_call_can_be_withdrawn():
    life = Life()
    first = life.busy()
    second = life.want()
    life.post(e.CallWithdrawn(second))
    assert life.settled[second].kind is Kind.WITHDRAWN
    assert f.Dispatch not in life.end(first).kinds()


def test_a_running_call_cannot_be_withdrawn():
    life = Life()
    ticket = life.busy()
    life.post(e.CallWithdrawn(ticket))
    assert life.effects == () and life.state is State.BUSY


def test_an_end_that_is_not_the_running_calls_changes_nothing():
    life = Life()
    ticket = life.busy()
    before = life.env
    life.end(ticket + 7)
    assert life.env is before and life.effects == ()


def test_a_worker_idle_for_long_is_pinged_before_its_next_call():
    life = Life(ping_idle=60, idle_release=0).born()
    ticket = life.want(later=61)
    assert life.effects == (f.Ping(1),) and life.state is State.PINGING
    assert life.news(e.Ponged).effects == (f.Dispatch(1, ticket),)


def test_a_worker_idle_for_long_is_pinged_although_its_asker_has_seen_it_alive():
    life = Life(ping_idle=60, idle_release=0).born()
    life.post(e.CallWanted(7, seen=1), 61)
    assert life.effects == (f.Ping(1),) and life.state is State.PINGING


def test_a_worker_idle_for_a_moment_is_not_pinged():
    life = Life(ping_idle=60, idle_release=0).born()
    life.want(later=59)
    assert life.kinds() == [f.Dispatch]


def test_a_busy_worker_is_never_pinged():
    life = Life(ping_idle=60)
    first = life.busy()
    life.want(later=1000)
    life.tick()
    assert f.Ping not in life.kinds()
    assert life.end(first).kinds() == [f.Settle, f.Dispatch], "its reply just proved it healthy"


def test_a_failed_ping_replaces_the_worker_and_the_call_notices_nothing():
    life = Life(ping_idle=60, idle_release=0).born()
    ticket = life.want(later=61)
    life.news(e.PingFailed, "no pong")
    assert life.one(f.Kill) == f.Kill(1, Reason.PING_FAILED, True) and ticket not in life.settled
    life.gone().join().prove()
    assert life.one(f.Dispatch) == f.Dispatch(2, ticket)


def test_a_ping_that_is_not_answered_in_time_replaces_the_worker():
    life = Life(ping_idle=60, ping=5, idle_release=0).born()
    ticket = life.want(later=61)
    life.tick_when_due().news(e.StackRead, "stuck")
    assert life.now == 66 and ticket not in life.settled
    assert life.one(f.Kill) == f.Kill(1, Reason.PING_FAILED, True)


def test_a_ping_outlives_the_call_it_was_for():
    life = Life(ping_idle=60, idle_release=0).born()
    ticket = life.want(later=61)
    life.post(e.CallWithdrawn(ticket)).news(e.Ponged)
    assert life.state is State.READY and life.effects == ()


def test_silence_ends_a_call_by_name_with_its_stack():
    life = Life(call_silence=20)
    ticket = life.busy()
    life.tick_when_due()
    assert life.kinds() == [f.AskStack] and ticket not in life.settled
    life.news(e.StackRead, "File node.py")
    assert life.settled[ticket].kind is Kind.SILENT and "20 s" in life.settled[ticket].message
    assert life.settled[ticket].stack == "File node.py"
    life.killed_for(Reason.CALL_SILENT)


def test_a_call_that_shows_signs_of_life_is_never_ended_by_the_clock():
    life = Life(call_silence=20)
    ticket = life.busy()
    for _ in range(100):
        life.news(e.CallAlive, ticket, later=19).tick()
        assert life.state is State.BUSY
    assert life.now > 1800


def test_no_silence_limit_is_the_default():
    life = Life()
    life.busy()
    assert life.due is None
    assert life.tick(1e6).state is State.BUSY


@pytest.mark.parametrize(("own", "limit"), [(None, 20), (5, 5), (0, None)])
def test_a_call_may_have_its_own_silence_limit(own, limit):
    life = Life(call_silence=20)
    life.busy(silence=own)
    assert life.due == (None if limit is None else life.now + limit)


def test_a_queued_call_keeps_its_own_silence_limit():
    life = Life(call_silence=20)
    first = life.busy()
    second = life.want(silence=3)
    life.end(first).accept(second)
    assert life.due == life.now + 3


def test_a_reply_after_the_judgement_is_not_the_calls_answer():
    life = Life(call_silence=20)
    ticket = life.busy()
    life.tick_when_due().end(ticket)
    assert ticket not in life.settled
    assert life.news(e.StackRead, "").settled[ticket].kind is Kind.SILENT


@pytest.mark.parametrize("named", [True, False])
def test_an_interrupt_goes_to_the_running_call_and_leaves_its_end_to_it(named):
    life = Life()
    ticket = life.busy()
    life.post(e.InterruptWanted(ticket if named else None))
    assert life.effects == (f.SendInterrupt(1, ticket),) and life.state is State.BUSY
    life.end(ticket, Outcome(Kind.INTERRUPTED), later=1)
    assert life.settled[ticket].kind is Kind.INTERRUPTED and life.state is State.READY


def test_an_interrupt_that_is_not_heeded_ends_the_worker_after_the_grace():
    life = Life(interrupt_grace=5)
    ticket = life.busy()
    life.post(e.InterruptWanted())
    life.post(e.InterruptWanted(), later=3)
    life.news(e.CallAlive, ticket, later=1.5).tick_when_due()
    assert life.now == 5, "neither asking again nor progress prolongs the grace"
    life.news(e.StackRead, "native")
    assert life.settled[ticket].kind is Kind.INTERRUPTED and life.settled[ticket].stack == "native"
    life.killed_for(Reason.INTERRUPT_GRACE)


def test_interrupting_again_and_again_does_not_park_the_environment():
    life = Life(crash_limit=2)
    for _ in range(4):
        life.busy()
        life.post(e.InterruptWanted()).tick_when_due().news(e.StackRead, "").gone()
        assert life.state is State.COLD


def test_an_interrupt_for_a_waiting_call_answers_it_and_leaves_the_running_one():
    life = Life()
    first = life.busy()
    second = life.want()
    life.post(e.InterruptWanted(second))
    assert life.settled[second].kind is Kind.INTERRUPTED and first not in life.settled


def test_an_interrupt_during_a_birth_answers_those_who_wait_for_it():
    life = Life()
    tickets = [life.want(), life.want()]
    life.post(e.InterruptWanted())
    assert [life.settled[ticket].kind for ticket in tickets] == [Kind.INTERRUPTED] * 2
    assert life.join().prove().state is State.READY


def test_a_crash_answers_the_running_call_at_once_with_the_real_status():
    life = Life()
    ticket = life.busy()
    life.dies(SEGFAULT)
    assert life.kinds() == [f.Settle, f.Kill]
    assert life.settled[ticket].kind is Kind.CRASHED and life.settled[ticket].status == SEGFAULT
    assert not life.one(f.Kill).replaced


def test_a_lost_lane_ends_the_worker_and_its_call():
    life = Life()
    ticket = life.busy()
    life.news(e.LaneLost, "reset by peer")
    assert life.settled[ticket].kind is Kind.CRASHED and "reset by peer" in life.settled[ticket].message
    life.killed_for(Reason.LANE_LOST)


def test_an_offer_that_was_not_taken_moves_to_the_next_worker():
    life = Life().born()
    first, second = life.want(), life.want()
    life.dies()
    assert life.settled.keys() == {1} and life.one(f.Kill).replaced
    life.gone().join().prove()
    assert life.one(f.Dispatch) == f.Dispatch(2, first)
    assert life.accept(first).end(first).one(f.Dispatch).ticket == second
