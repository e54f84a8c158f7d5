"""Rules 16 to 24: one exit, named failures, crash loops, wedged workers, replacement, the shutdown."""

import pytest

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.brief import tail
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.record import State, WorkerRecord
from comfy_env.testing.lifecycle_world import old_news
from comfy_env.values import ExitStatus
from tests.lifecycle.life import GOOD, KILLED, SEGFAULT, Life


def test_the_next_worker_is_started_only_when_the_tree_is_gone():
    life = Life()
    ticket = life.busy()
    life.dies(SEGFAULT)
    second = life.want()
    assert ticket in life.settled and life.effects == () and life.state is State.CLOSING
    assert life.gone(SEGFAULT).effects == (f.Spawn(2),)
    assert life.join().prove().one(f.Dispatch) == f.Dispatch(2, second)


def test_a_dead_worker_nobody_waits_for_leaves_an_empty_row():
    life = Life()
    life.busy()
    life.dies().gone()
    assert life.env.row == WorkerRecord(generation=1)


def test_a_condemned_worker_that_ends_by_itself_is_killed_at_once_and_its_status_told():
    life = Life(call_silence=20)
    ticket = life.busy()
    life.tick_when_due().dies(SEGFAULT)
    assert life.settled[ticket].kind is Kind.SILENT and life.settled[ticket].status == SEGFAULT
    life.killed_for(Reason.CALL_SILENT)


@pytest.mark.parametrize("lose", [lambda life: life.dies(), lambda life: life.news(e.LaneLost)])
def test_an_idle_worker_that_is_lost_is_cleared_away(lose):
    life = Life().born()
    lose(life)
    assert life.kinds() == [f.Kill] and life.gone().state is State.COLD


def test_a_worker_can_be_ended_on_request_and_its_call_is_told():
    life = Life()
    ticket = life.busy()
    life.post(e.KillWanted(Reason.ASKED)).news(e.StackRead, "here")
    assert life.settled[ticket].kind is Kind.CRASHED and Reason.ASKED.value in life.settled[ticket].message
    assert life.settled[ticket].stack == "here"
    life.killed_for(Reason.ASKED)
    assert life.gone().env.ledger.deaths == ()


def test_a_birth_that_is_ended_on_request_is_followed_by_another_for_those_who_wait():
    life = Life()
    life.want()
    life.news(e.Spawned, 1).post(e.KillWanted(Reason.ASKED))
    assert life.one(f.Kill).replaced and life.settled == {}
    assert life.gone().effects == (f.Spawn(2),)


# ---- crash loops

def crash(life: Life, later: float = 0.0) -> None:
    life.now += later
    life.busy()
    life.dies(SEGFAULT).gone(SEGFAULT)


def test_three_deaths_in_the_window_park_the_environment():
    life = Life(crash_limit=3, crash_window=60, park=30)
    for _ in range(3):
        assert life.state is State.COLD
        crash(life, later=10)
    assert life.state is State.PARKED
    ticket = life.want(later=4)
    assert life.settled[ticket].kind is Kind.PARKED
    assert "3 deaths in 60 s" in life.settled[ticket].message and "26.0 s" in life.settled[ticket].message
    assert Reason.CRASHED.value in life.settled[ticket].message and life.effects == (f.Settle(3, ticket, life.settled[ticket]),)


def test_deaths_further_apart_than_the_window_do_not_park():
    life = Life(crash_limit=3, crash_window=60)
    for _ in range(10):
        crash(life, later=31)
        assert life.state is State.COLD


def test_those_who_wait_when_the_environment_is_parked_are_told_at_once():
    life = Life(crash_limit=1)
    life.busy()
    waiting = life.want()
    life.dies()
    assert life.settled[waiting].kind is Kind.PARKED and not life.one(f.Kill).replaced
    late = life.want()
    assert life.state is State.CLOSING and life.settled[late].kind is Kind.PARKED


def test_a_call_after_the_pause_is_tried_again():
    life = Life(crash_limit=1, park=30)
    crash(life)
    life.want(later=30)
    assert life.effects == (f.Spawn(2),)


def test_the_pause_ends_at_a_tick_too():
    life = Life(crash_limit=1, park=30)
    crash(life)
    assert life.due == 30 and life.tick_when_due().state is State.COLD


def test_the_pause_doubles_up_to_its_limit():
    life = Life(crash_limit=1, park=30, park_most=100)
    pauses = []
    for _ in range(4):
        life.busy()
        life.dies().gone()
        pauses.append(life.due - life.now)
        life.tick_when_due()
    assert pauses == [30, 60, 100, 100]


def test_a_worker_that_served_longer_than_the_window_clears_the_doubling():
    life = Life(crash_limit=1, crash_window=60, park=30)
    crash(life)
    life.tick_when_due()
    life.busy()
    life.dies(later=61).gone()
    assert life.due - life.now == 30


def test_a_person_may_end_the_pause_and_the_count_starts_anew():
    life = Life(crash_limit=2)
    crash(life)
    crash(life)
    life.post(e.Unpark())
    assert life.state is State.COLD
    crash(life)
    assert life.state is State.COLD


@pytest.mark.parametrize("kind", [Kind.INTERPRETER_MISSING, Kind.ENV_NOT_BUILT, Kind.ENV_MOVED])
def test_a_birth_that_says_what_is_wrong_beforehand_never_parks(kind):
    life = Life(crash_limit=2)
    for _ in range(5):
        life.want()
        life.news(e.SpawnFailed, Outcome(kind))
        assert life.state is State.COLD and life.env.ledger.deaths == ()


def test_births_that_fail_park_like_deaths():
    life = Life(crash_limit=2)
    for _ in range(2):
        life.want()
        life.news(e.SpawnFailed, Outcome(Kind.SPAWN_FAILED))
    assert life.state is State.PARKED


# ---- a crash that is told before the exit

def test_a_told_crash_is_answered_at_once_and_its_kill_waits_for_the_exit():
    life = Life()
    ticket = life.busy()
    assert life.news(e.CrashTold, SEGFAULT, "deep").kinds() == [f.Settle]
    told = life.settled[ticket]
    assert (told.kind, told.status, told.stack) == (Kind.CRASHED, SEGFAULT, "deep") and life.state is State.CLOSING
    life.want()
    assert life.effects == ()
    life.dies(SEGFAULT).killed_for(Reason.CRASHED)
    assert life.env.row.status == SEGFAULT and len(life.env.ledger.deaths) == 1
    assert life.gone(SEGFAULT).effects == (f.Spawn(2),)


def test_a_told_crash_whose_exit_does_not_come_is_killed_after_a_kills_time():
    life = Life(kill=2)
    life.busy()
    life.news(e.CrashTold, SEGFAULT)
    assert life.due == life.now + 2
    life.tick_when_due().killed_for(Reason.CRASHED)


def test_the_exit_of_a_told_crash_is_not_waited_for_once_a_kill_is_asked_for():
    life = Life()
    life.busy()
    life.news(e.CrashTold, SEGFAULT)
    assert life.post(e.KillWanted(Reason.ASKED)).kinds() == [f.Kill]


def test_a_crash_told_twice_or_after_the_exit_changes_nothing():
    for first in (lambda life: life.news(e.CrashTold, SEGFAULT), lambda life: life.dies(SEGFAULT)):
        life = Life()
        life.busy()
        first(life)
        before = life.env
        assert life.news(e.CrashTold, SEGFAULT, "again").effects == () and life.env == before


@pytest.mark.parametrize(("proving", "kind"), [(False, Kind.DIED_BEFORE_JOINING), (True, Kind.CRASHED)])
def test_a_crash_that_is_told_in_a_birth_answers_everybody_who_waits(proving, kind):
    life = Life()
    tickets = [life.want(), life.want()]
    life.news(e.Spawned, 101)
    if proving:
        life.news(e.LanesOpen)
    life.news(e.CrashTold, SEGFAULT, "deep")
    assert [(life.settled[ticket].kind, life.settled[ticket].stack) for ticket in tickets] == [(kind, "deep")] * 2


def test_a_told_crash_is_in_what_an_error_tells_of_its_worker():
    life = Life()
    life.busy()
    life.news(e.CrashTold, SEGFAULT, "deep")
    assert tail(life.env.ledger.story, life.now)[-1].endswith("ended by signal 11 (SIGSEGV)")
    assert "deep" not in "".join(line.text for line in life.env.ledger.story.lines)


# ---- wedged

@pytest.mark.row("F13")
def test_a_worker_that_will_not_die_gets_no_twin_and_the_message_says_where_it_is():
    life = Life()
    life.busy()
    waiting = life.want()
    life.dies().news(e.WontDie, "in the kernel")
    assert life.state is State.WEDGED and life.settled[waiting].kind is Kind.WEDGED
    ticket = life.want(later=1e6)
    assert "pid 101" in life.settled[ticket].message and "card" in life.settled[ticket].message


def test_a_kill_nobody_answers_for_counts_as_failed():
    life = Life(kill=2)
    life.busy()
    life.dies().tick_when_due()
    assert life.state is State.WEDGED


def test_a_wedged_worker_that_ends_after_all_is_cleared_away_and_replaced():
    life = Life()
    life.busy()
    life.dies().news(e.WontDie)
    assert life.dies(KILLED).kinds() == [f.Kill]
    assert life.gone().state is State.COLD
    life.want()
    assert life.effects == (f.Spawn(2),)


def test_a_thread_that_cannot_be_killed_wedges_until_it_ends_by_itself():
    life = Life(killable=False)
    life.busy()
    life.post(e.KillWanted(Reason.ASKED)).news(e.StackRead, "").news(e.WontDie)
    ticket = life.want()
    assert "generation 1 still runs in this process" in life.settled[ticket].message
    assert life.settled[ticket].hint == "restart ComfyUI"
    assert life.news(e.ProcessExited, ExitStatus(code=0)).kinds() == [f.Kill], "what it left behind is given back"
    assert life.gone().state is State.COLD
    life.want()
    assert life.effects == (f.Spawn(2),)


# ---- replacement

@pytest.mark.row("F19")
def test_the_stand_ins_of_a_dead_worker_are_kept_until_others_are_registered():
    life = Life().born()
    life.news(e.StandInsChanged, 3).dies()
    assert f.Quarantine(1) in life.effects
    assert life.gone().effects == ()
    assert life.post(e.StandInsRegistered()).effects == (f.DropQuarantine(1),)
    assert life.post(e.StandInsRegistered()).effects == ()


def test_a_worker_without_stand_ins_needs_no_quarantine():
    life = Life().born()
    assert life.dies().kinds() == [f.Kill]


def test_a_replacement_forgets_everything_about_the_former_process():
    life = Life().born()
    life.news(e.HeldGrew, 9).news(e.StandInsChanged, 1).news(e.HostHoldsChanged, 2, 3).post(e.PromptChanged("p")).post(e.SourceChanged())
    life.want()
    life.dies().gone()
    row = life.env.row
    assert row == WorkerRecord.born_as(2, life.now, row.due)


@pytest.mark.row("F16")
def test_news_of_an_old_generation_changes_nothing_a_thousand_times():
    life = Life().born()
    life.dies().gone()
    ticket = life.busy()
    before = life.env
    for _ in range(1000 // len(old_news(1)) + 1):
        for event in old_news(1):
            life.post(event)
            assert life.env is before and life.effects == ()
    assert life.end(ticket).settled[ticket].kind is Kind.RETURNED


def test_news_of_a_row_that_is_gone_changes_nothing():
    life = Life().born()
    life.dies().gone()
    before = life.env
    for event in old_news(1):
        assert life.post(event).env is before and life.effects == ()


# ---- shutdown

def test_a_cold_environment_closes_at_once():
    life = Life()
    life.post(e.ShutdownWanted())
    assert life.state is State.GONE and life.effects == ()


def test_an_idle_worker_is_said_goodbye_and_may_end_by_itself():
    life = Life(shutdown=5).born()
    life.post(e.ShutdownWanted())
    assert life.effects == (f.Goodbye(1, 5.0),)
    life.dies(ExitStatus(code=0))
    life.killed_for(Reason.SHUTDOWN)
    assert life.gone().state is State.GONE


def test_a_worker_that_does_not_heed_the_goodbye_is_killed_at_the_shared_deadline():
    life = Life(shutdown=5).born()
    life.now = 100.0
    life.post(e.ShutdownWanted(due=103.0)).tick_when_due()
    assert life.now == 103
    life.killed_for(Reason.SHUTDOWN)


def test_a_running_call_is_asked_to_stop_and_may_end_before_the_deadline():
    life = Life(shutdown=5)
    ticket = life.busy()
    waiting = life.want()
    life.post(e.ShutdownWanted())
    assert life.settled[waiting].kind is Kind.CLOSED and f.SendInterrupt(1, ticket) in life.effects
    life.end(ticket, Outcome(Kind.INTERRUPTED), later=1)
    assert life.settled[ticket].kind is Kind.INTERRUPTED and life.one(f.Goodbye).deadline == 5.0


def test_a_call_that_outlasts_the_deadline_is_answered_closed_and_its_worker_killed():
    life = Life(shutdown=5)
    ticket = life.busy()
    life.post(e.ShutdownWanted()).tick_when_due()
    assert life.now == 5 and life.settled[ticket].kind is Kind.CLOSED
    life.killed_for(Reason.SHUTDOWN)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_worker_being_born_is_killed_and_its_callers_are_told(steps):
    life = Life()
    ticket = life.want()
    for event in (e.Spawned(1, 7), e.LanesOpen(1))[:steps]:
        life.post(event)
    life.post(e.ShutdownWanted())
    assert life.settled[ticket].kind is Kind.CLOSED
    life.killed_for(Reason.SHUTDOWN)


def test_an_offer_that_is_out_at_the_shutdown_is_void():
    life = Life().born()
    ticket = life.want()
    life.post(e.ShutdownWanted())
    assert life.settled[ticket].kind is Kind.CLOSED
    assert life.accept(ticket).state is State.CLOSING


@pytest.mark.parametrize("prepare", [
    lambda life: life,
    lambda life: life.born(),
    lambda life: life.busy() and life,
    lambda life: life.born().dies(),
    lambda life: life.born().dies().news(e.WontDie),
])
def test_nothing_spawns_after_the_shutdown(prepare):
    life = prepare(Life())
    life.post(e.ShutdownWanted())
    for event in (e.Tick(), e.Unpark(), e.EnvChanged(), e.ShutdownWanted()):
        life.post(event, later=100)
        ticket = life.want()
        assert life.settled[ticket].kind is Kind.CLOSED
    life.dies().gone().news(e.Proved, GOOD, "d")
    ticket = life.want()
    assert life.settled[ticket].kind is Kind.CLOSED and len(life.memory.started) <= 1


def test_a_zygote_is_dropped_when_its_environment_changes_or_closes():
    life = Life()
    assert life.post(e.ZygoteUp()).post(e.EnvChanged()).effects == (f.DropZygote(0),)
    assert life.post(e.ZygoteUp()).post(e.ZygoteLost()).post(e.EnvChanged()).effects == ()
    assert life.post(e.ZygoteUp()).post(e.ShutdownWanted()).effects == (f.DropZygote(0),)
    assert life.post(e.ZygoteUp()).effects == (f.DropZygote(0),)


def test_a_worker_seen_to_exit_although_its_kill_failed_is_tried_once_more():
    """The kill's answer and the exit may cross; without another try the environment would stay wedged for a dead worker."""
    life = Life().born()
    life.post(e.KillWanted(Reason.ASKED)).dies().news(e.WontDie, "still there")
    assert life.state is State.WEDGED
    life.tick_when_due()
    assert life.one(f.Kill).generation == 1 and life.state is State.CLOSING
    assert life.gone().state is State.COLD


def test_a_worker_that_survives_both_tries_stays_wedged_and_is_left_alone():
    life = Life().born()
    life.post(e.KillWanted(Reason.ASKED)).dies().news(e.WontDie).tick_when_due()
    life.news(e.WontDie, "in the kernel")
    assert life.state is State.WEDGED and life.due is None
    assert life.tick(3600).effects == ()
