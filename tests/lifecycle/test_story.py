"""Rule 25: a bounded story in which calls never push out births, proofs, limits or deaths."""

from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.effects import Kill
from comfy_env.lifecycle.story import MOST_IMPORTANT, MOST_ORDINARY, Story, called, lines_text, told
from comfy_env.lifecycle.telling import words
from comfy_env.values import Proof
from tests.lifecycle.life import SEGFAULT, Life


def test_a_run_of_ordinary_calls_is_one_line_with_a_count():
    life = Life().born()
    before = len(life.env.ledger.story.lines)
    for _ in range(1000):
        ticket = life.want(later=0.01)
        life.accept(ticket).end(ticket)
    assert len(life.env.ledger.story.lines) == before
    assert "call returned (1001 times in 10.000 s)" in life.story


def test_calls_that_end_differently_share_lines_of_their_own():
    life = Life().born()
    for kind in (Kind.RETURNED, Kind.RAISED) * 50:
        ticket = life.want()
        life.accept(ticket).end(ticket, Outcome(kind))
    assert "call returned (51 times" in life.story and "call raised (50 times" in life.story


def test_a_life_is_told_from_birth_to_death():
    life = Life(call_silence=20)
    life.want()
    life.news(e.Spawned, 77, "card").news(e.SignOfLife, "started").news(e.LanesOpen)
    life.prove(Proof("d", "d", host_device="A", worker_device="B")).accept(1).tick_when_due().news(e.StackRead, "x").gone()
    parts = (
        "spawned (pid 77", "sign of life: started", "lanes open", "demoted", "a limit passed", "ask stack", "kill (a call was silent",
        "tree gone (ended by signal 9 (SIGKILL))", "ticket 1 is told silent",
    )
    assert [part for part in parts if part not in life.story] == []


def test_calls_never_push_out_what_matters():
    life = Life(idle_release=60, idle_reap=0, ping_idle=1000)
    life.busy()
    life.dies(SEGFAULT).gone().born()
    for index in range(200):
        ticket = life.want(later=1)
        life.accept(ticket).end(ticket)
        life.news(e.HeldGrew, 1).tick(70).news(e.Receipt, index, index + 1)
    lines = life.env.ledger.story.lines
    assert sum(line.ordinary for line in lines) == MOST_ORDINARY
    assert "SIGSEGV" in life.story and "cold → spawning" in life.story


def test_the_story_is_bounded_whatever_happens():
    story = Story()
    for index in range(1000):
        story = called(told(story, index, f"death {index}", index), index, f"call {index}", index)
    assert len(story.lines) == MOST_IMPORTANT + MOST_ORDINARY
    assert story.lines[-2].text == "death 999"


def test_lines_say_how_long_ago_or_when():
    story = told(Story(), 10.0, "spawned", 3)
    assert lines_text(story, 12.5) == ("2.500 s ago  #3  spawned",)
    assert lines_text(story) == ("at 10.000 s  #3  spawned",)


def test_steps_that_change_nothing_leave_no_line():
    life = Life().born()
    before = life.env.ledger.story
    life.tick().post(e.PromptChanged("p")).news(e.HeldGrew, 5).news(e.CallAlive, 9).post(e.ZygoteLost())
    assert life.env.ledger.story is before


def test_calls_refused_by_a_pause_share_a_line():
    life = Life(crash_limit=1)
    life.busy()
    life.dies().gone()
    for _ in range(10):
        life.want()
    assert "call not begun: parked (10 times" in life.story


def test_words_name_what_an_event_carries():
    assert words(e.ProcessExited(1, SEGFAULT)) == "process exited (ended by signal 11 (SIGSEGV))"
    assert words(Kill(1, Reason.REAPED, True)) == "kill (it was idle and held nothing, replaced)"
    assert words(e.StackRead(1, "line one\nline two\n")) == "stack read"
