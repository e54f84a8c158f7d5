"""Rules 12 to 15: sweep, receipts, reaper, staleness, lived time."""

import pytest

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.record import State
from comfy_env.values import Want
from tests.lifecycle.life import Life


def test_an_idle_worker_is_asked_to_release_everything():
    life = Life(idle_release=60).born()
    life.tick(59)
    assert life.effects == ()
    life.tick_when_due()
    assert life.now == 60 and life.effects == (f.Release(1, Want(None, "idle")),) and life.state is State.RELEASING


def test_only_a_receipt_shrinks_what_a_worker_is_believed_to_hold():
    life = Life(idle_release=60).born()
    life.news(e.HeldGrew, 500)
    assert life.env.row.held == 500
    life.news(e.HeldGrew, 100)
    assert life.env.row.held == 500, "growth is believed, and nothing else"
    life.tick_when_due().news(e.Receipt, 400, 100)
    assert life.env.row.held == 100 and life.state is State.READY


def test_a_sweep_is_not_repeated_while_nothing_is_held():
    life = Life(idle_release=60, idle_reap=0).born()
    life.tick_when_due().news(e.Receipt, 0, 0)
    assert life.due is None


def test_a_sweep_is_repeated_after_a_while_if_something_is_still_held():
    life = Life(idle_release=60, idle_reap=0).born()
    life.news(e.HeldGrew, 500).tick_when_due().news(e.Receipt, 0, 500)
    assert life.due == life.now + 60


def test_a_call_wanted_during_a_release_is_served_after_the_receipt():
    life = Life(idle_release=60).born()
    life.tick_when_due()
    ticket = life.want()
    assert life.effects == ()
    assert life.news(e.Receipt, 1, 0).one(f.Dispatch).ticket == ticket


def test_a_release_that_fails_is_noted_and_belief_stays():
    life = Life(idle_release=60).born()
    life.news(e.HeldGrew, 5).tick_when_due().news(e.ReleaseFailed, "wrong type")
    assert life.state is State.READY and life.env.row.held == 5 and "wrong type" in life.notes()


def test_a_release_that_takes_too_long_replaces_the_worker_and_the_call_notices_nothing():
    life = Life(idle_release=60, release=10).born()
    life.tick_when_due()
    ticket = life.want(later=1)
    life.tick_when_due().news(e.StackRead, "s")
    life.killed_for(Reason.RELEASE_LATE)
    assert life.gone().join().prove().one(f.Dispatch).ticket == ticket


def test_zero_disables_the_sweep():
    life = Life(idle_release=0, idle_reap=0).born()
    assert life.due is None and life.tick(1e6).effects == ()


def test_a_tight_card_makes_idle_workers_on_it_release_at_once():
    life = Life().born()
    life.news(e.HeldGrew, 5).post(e.CardTight("other", True))
    assert life.effects == ()
    life.post(e.CardTight("card", True))
    assert life.effects == (f.Release(1, Want(None, "the card is tight")),)


def test_a_tight_card_does_not_take_memory_from_the_running_prompts_worker():
    life = Life()
    life.post(e.PromptChanged("p")).born()
    life.news(e.HeldGrew, 5).post(e.CardTight("card", True))
    assert life.effects == () and life.tick().effects == ()
    assert life.post(e.PromptChanged("")).kinds() == [f.Release], "its prompt is over"


def test_a_release_can_be_asked_for_and_waits_for_a_busy_lane():
    life = Life()
    ticket = life.busy()
    waiting = life.want()
    life.post(e.ReleaseWanted(Want(10))).post(e.ReleaseWanted(Want(7)))
    assert life.effects == ()
    life.end(ticket)
    assert life.one(f.Release).want == Want(10) and life.state is State.RELEASING
    assert life.news(e.Receipt, 10, 0).one(f.Dispatch).ticket == waiting


def test_an_idle_worker_that_holds_nothing_is_reaped_after_the_sweep():
    life = Life(idle_release=60, idle_reap=1800).born()
    life.tick_when_due().news(e.Receipt, 0, 0).tick_when_due()
    assert life.now == 1800 and life.state is State.CLOSING
    assert life.effects == (f.Kill(1, Reason.REAPED, False),)
    assert life.gone().state is State.COLD and life.env.ledger.deaths == ()


def test_the_sweep_comes_before_the_reaper():
    life = Life(idle_release=60, idle_reap=60).born()
    assert life.tick_when_due().kinds() == [f.Release]
    assert life.news(e.Receipt, 0, 0).tick_when_due().kinds() == [f.Kill]


@pytest.mark.parametrize("hindrance", [
    lambda life: life.news(e.HeldGrew, 1),
    lambda life: life.news(e.StandInsChanged, 1),
    lambda life: life.news(e.HostHoldsChanged, 1, 0),
    lambda life: life.news(e.HostHoldsChanged, 0, 1),
    lambda life: life.want() and life,
])
def test_a_worker_that_is_needed_is_not_reaped(hindrance):
    life = Life(idle_release=0, idle_reap=1800).born()
    hindrance(life)
    life.tick(1e6)
    assert life.state is State.READY and f.Kill not in life.kinds()


def test_the_running_prompts_worker_is_not_reaped_until_the_prompt_is_over():
    life = Life(idle_release=0, idle_reap=1800)
    life.post(e.PromptChanged("p")).born()
    assert life.tick(1e6).state is State.READY
    assert life.post(e.PromptChanged("q")).tick().state is State.CLOSING


def test_zero_disables_the_reaper():
    life = Life(idle_release=0, idle_reap=0).born()
    assert life.tick(1e9).state is State.READY


def test_a_call_that_comes_after_the_judgement_gets_the_next_worker():
    life = Life(idle_release=0, idle_reap=1800).born()
    life.tick_when_due()
    ticket = life.want()
    assert life.effects == () and ticket not in life.settled
    assert life.gone().effects == (f.Spawn(2),)
    assert life.join().prove().one(f.Dispatch) == f.Dispatch(2, ticket)


def test_every_use_restarts_the_idle_time():
    life = Life(idle_release=0, idle_reap=1800, ping_idle=2000).born()
    ticket = life.want(later=1000)
    life.accept(ticket).end(ticket, later=500)
    assert life.due == life.now + 1800


# ---- staleness

def test_a_change_must_settle_for_one_more_poll_before_the_worker_is_replaced():
    life = Life(tick=10).born()
    life.post(e.SourceChanged())
    life.post(e.SourceChanged(), later=9)
    life.tick(9)
    assert life.state is State.READY, "it changed again 9 s ago"
    life.tick(1)
    life.killed_for(Reason.STALE_SOURCE)
    assert life.env.ledger.deaths == ()


def test_a_stale_worker_is_replaced_between_two_calls_and_they_notice_nothing():
    life = Life(tick=10)
    first = life.busy()
    second = life.want()
    life.post(e.EnvChanged()).tick(11)
    assert life.state is State.BUSY
    life.end(first)
    assert life.kinds() == [f.Settle, f.Kill] and life.one(f.Kill) == f.Kill(1, Reason.STALE_ENV, True)
    assert life.gone().join().prove().one(f.Dispatch) == f.Dispatch(2, second)


def test_sources_that_cannot_be_used_replace_nothing():
    life = Life(tick=10).born()
    life.post(e.SourceChanged()).post(e.SourceChanged("nodes.py line 3: invalid syntax"), later=1)
    assert "line 3" in life.notes()
    assert life.tick(100).state is not State.CLOSING and life.env.row.stale is None


def test_a_stale_worker_with_stand_ins_waits_and_says_so_once():
    life = Life(tick=10, idle_release=0).born()
    life.news(e.StandInsChanged, 2).post(e.SourceChanged()).tick_when_due()
    assert "2 stand-ins" in life.notes() and life.state is State.READY
    assert life.due is None and life.tick(1000).effects == ()
    life.news(e.StandInsChanged, 0)
    life.killed_for(Reason.STALE_SOURCE)


def test_a_cold_environment_is_never_stale():
    life = Life()
    life.post(e.SourceChanged()).post(e.EnvChanged())
    assert life.born().env.row.stale is None


def test_an_outcome_names_its_error():
    assert [Outcome(kind).kind.error.__name__ for kind in Kind if kind.value] == [kind.value for kind in Kind if kind.value]
