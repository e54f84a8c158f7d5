"""What an error tells of the workers before it: a line each, for people."""

from __future__ import annotations

import re

from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.brief import MOST_WORKERS, ago, tail
from tests.lifecycle.life import SEGFAULT, Life


def _tail(life: Life) -> tuple[str, ...]:
    return tail(life.env.ledger.story, life.now)


def _serve(life: Life, count: int) -> None:
    for _ in range(count):
        ticket = life.want(later=1)
        life.accept(ticket).end(ticket)


def test_a_worker_that_died_is_one_line_with_birth_calls_and_death():
    life = Life(ping_idle=1000).born()
    _serve(life, 12)
    life.accept(life.want())
    life.dies(SEGFAULT)
    (line,) = _tail(life)
    assert line == "generation 1: started 12 s ago, was ready, 13 calls returned, ended by signal 11 (SIGSEGV) just now"


def test_a_worker_that_was_ended_says_why():
    life = Life(call_silence=20)
    life.busy()
    life.tick_when_due().news(e.StackRead, "x")
    assert _tail(life)[-1].endswith("was ended (a call was silent past its limit) just now")


def test_an_environment_that_never_had_a_worker_has_no_lines():
    life = Life()
    life.want()
    assert _tail(life) == ()


def test_only_the_last_few_workers_are_told_and_none_with_tickets_or_digests():
    life = Life(crash_limit=100)
    for _ in range(6):
        life.busy()
        life.dies(SEGFAULT).gone()
    lines = _tail(life)
    assert [line.split(":")[0] for line in lines] == [f"generation {n}" for n in (4, 5, 6)[-MOST_WORKERS:]]
    assert not re.search(r"ticket|[0-9a-f]{16}|→", "\n".join(lines))


def test_times_are_as_fine_as_people_care_for():
    assert [ago(seconds) for seconds in (0.02, 7.4, 600, 9000)] == ["just now", "7 s ago", "10 min ago", "2.5 h ago"]


def test_the_whole_story_holds_no_digest_either():
    life = Life().born()
    life.post(e.ShutdownWanted(12626.513))
    assert "12626" not in life.story and "(d)" not in life.story
