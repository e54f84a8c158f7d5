"""Rules 1 to 6: lazy, one spawn for many, timed from the last sign of life, proved before trusted."""

import pytest

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.record import State
from comfy_env.values import Proof, Want
from tests.lifecycle.life import KILLED, SEGFAULT, Life


def test_nothing_but_a_call_makes_a_cold_environment_spawn():
    life = Life()
    told = (e.PromptChanged("p"), e.CardTight("card", True), e.EnvChanged(), e.SourceChanged(), e.ZygoteUp(), e.StandInsRegistered())
    for event in (e.Tick(), e.Unpark(), e.InterruptWanted(), e.ReleaseWanted(Want()), *told):
        life.post(event)
        assert f.Spawn not in life.kinds() and life.state is State.COLD


def test_a_birth_goes_from_spawn_to_the_first_dispatch():
    life = Life()
    ticket = life.want()
    assert life.effects == (f.Spawn(1),) and life.state is State.SPAWNING
    life.news(e.Spawned, 77, "card")
    assert life.effects == (f.OpenLanes(1),) and (life.env.row.pid, life.env.row.device) == (77, "card")
    assert life.news(e.LanesOpen).effects == (f.Prove(1),)
    assert life.prove().effects == (f.Dispatch(1, ticket),) and life.state is State.READY


def test_many_callers_of_a_cold_environment_share_one_spawn():
    life = Life()
    tickets = [life.want() for _ in range(64)]
    life.join().prove()
    for ticket in tickets:
        assert life.one(f.Dispatch).ticket == ticket
        life.accept(ticket).end(ticket)
    assert life.memory.started == {1} and len(life.settled) == 64


def test_many_callers_get_the_same_named_failure():
    life = Life()
    tickets = [life.want() for _ in range(5)]
    why = Outcome(Kind.INTERPRETER_MISSING, "no interpreter")
    life.news(e.SpawnFailed, why)
    assert [life.settled[ticket] for ticket in tickets] == [why] * 5
    assert life.state is State.COLD and f.Kill not in life.kinds()


def test_the_birth_limit_counts_from_the_last_sign_of_life():
    life = Life(birth=60)
    life.want()
    life.news(e.Spawned, 1)
    for stage in ("started", "imports done", "authenticated"):
        life.news(e.SignOfLife, stage, later=59).tick()
        assert life.state is State.JOINING
    life.tick(59.9)
    assert life.state is State.JOINING
    life.tick(0.2)
    assert life.kinds() == [f.AskStack]


def test_a_silent_birth_is_ended_with_the_stack_it_showed():
    life = Life(birth=60)
    ticket = life.want()
    life.news(e.Spawned, 1).tick_when_due()
    assert life.now == 60 and ticket not in life.settled
    life.news(e.StackRead, "File boot.py")
    assert life.settled[ticket].kind is Kind.BIRTH_SILENT and life.settled[ticket].stack == "File boot.py"
    life.killed_for(Reason.BIRTH_SILENT)


def test_a_stack_that_does_not_come_holds_the_kill_up_for_its_limit_only():
    life = Life(birth=60, stack=0.2)
    ticket = life.want()
    life.news(e.Spawned, 1).tick_when_due().tick_when_due()
    assert life.now == pytest.approx(60.2) and life.settled[ticket].stack == ""
    life.killed_for(Reason.BIRTH_SILENT)


def test_a_spawn_that_takes_too_long_is_given_up():
    life = Life(spawn=10)
    ticket = life.want()
    life.tick_when_due()
    assert life.now == 10 and life.settled[ticket].kind is Kind.SPAWN_FAILED
    life.killed_for(Reason.SPAWN_LATE)
    life.news(e.Spawned, 5)
    assert life.env.row.pid == 5 and life.effects == () and life.state is State.CLOSING


def test_a_canary_that_does_not_come_back_in_time_is_refused():
    life = Life(verify=60)
    ticket = life.want()
    life.join().tick_when_due().news(e.StackRead, "s")
    assert life.settled[ticket].kind is Kind.REFUSED
    life.killed_for(Reason.VERIFY_LATE)


@pytest.mark.parametrize("proof", [Proof(None), Proof("x", "d"), Proof("d", None), Proof("d", "zeros")])
def test_a_worker_whose_canary_is_missing_or_wrong_is_refused(proof):
    life = Life()
    tickets = [life.want(), life.want()]
    life.join().prove(proof)
    assert [life.settled[ticket].kind for ticket in tickets] == [Kind.REFUSED] * 2
    life.killed_for(Reason.REFUSED)
    assert not life.one(f.Kill).replaced


@pytest.mark.parametrize("proof", [
    Proof("d", "d", gpu="zeros", gpu_echo="d", host_device="A", worker_device="A"),
    Proof("d", "d", gpu="d", gpu_echo="zeros", host_device="A", worker_device="A"),
    Proof("d", "d", gpu=None, host_device="A", worker_device="A"),
    Proof("d", "d", gpu="d", gpu_echo="d", host_device="A", worker_device="B"),
])
def test_a_worker_with_a_fault_on_its_device_is_demoted_and_used(proof):
    life = Life()
    ticket = life.want()
    life.join().prove(proof)
    assert not life.env.row.gpu_ok and life.one(f.Dispatch).ticket == ticket
    assert "demoted" in life.notes() and life.one(f.Note).level == "warning"


def test_a_worker_whose_device_proved_itself_keeps_the_short_way():
    life = Life()
    life.want()
    life.join().prove(Proof("d", "d", gpu="d", gpu_echo="d", host_device="A", worker_device="A"))
    assert life.env.row.gpu_ok and life.notes() == ""


def test_a_worker_without_the_hosts_device_is_not_said_to_be_demoted():
    life = Life()
    life.want()
    life.join().prove(Proof("d", "d", host_device="A"))
    assert not life.env.row.gpu_ok and life.notes() == ""


@pytest.mark.parametrize("joined", [False, True])
def test_a_worker_that_ends_before_its_lanes_are_open_says_so_with_its_status(joined):
    life = Life()
    ticket = life.want()
    if joined:
        life.news(e.Spawned, 1)
    life.dies(SEGFAULT)
    assert life.settled[ticket].kind is Kind.DIED_BEFORE_JOINING and life.settled[ticket].status == SEGFAULT
    assert life.state is State.CLOSING and life.gone().state is State.COLD


def test_a_worker_that_ends_while_it_proves_itself_says_so_with_its_status():
    life = Life()
    ticket = life.want()
    life.join().dies(SEGFAULT)
    assert life.settled[ticket].kind is Kind.CRASHED and life.settled[ticket].status == SEGFAULT
    assert "proved itself" in life.settled[ticket].message


@pytest.mark.parametrize("kind", [e.LanesFailed, e.ProofFailed])
def test_a_birth_that_fails_kills_what_was_started(kind):
    life = Life()
    ticket = life.want()
    life.news(e.Spawned, 1)
    if kind is e.ProofFailed:
        life.news(e.LanesOpen)
    why = Outcome(Kind.REFUSED, "a stranger")
    life.news(kind, why)
    assert life.settled[ticket] == why and f.Kill in life.kinds()


def test_a_birth_that_fails_answers_those_waiting_then_and_not_those_who_come_later():
    life = Life()
    first = life.want()
    life.news(e.Spawned, 1).dies()
    second = life.want()
    assert first in life.settled and second not in life.settled
    assert life.gone(KILLED).effects == (f.Spawn(2),)


def test_a_birth_goes_on_when_nobody_waits_any_more():
    life = Life()
    ticket = life.want()
    life.news(e.Spawned, 1).post(e.CallWithdrawn(ticket)).news(e.LanesOpen).prove()
    assert life.state is State.READY and life.effects == ()
