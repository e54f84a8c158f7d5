"""Rule 25: each environment keeps a bounded story; calls never push out births, proofs, limits and deaths."""

import re

import pytest

from comfy_env import errors
from comfy_env.lifecycle.deaths import Kind, Reason
from comfy_env.lifecycle.story import MOST_IMPORTANT, MOST_ORDINARY
from comfy_env.testing.stage import needs
from tests.contract.worlds import over


def test_a_thousand_calls_are_one_line_with_a_count(stage):
    for number in range(200):
        stage.pool.call(stage.plan, "contract_probe:add", number)
    lines = [line for line in stage.pool.story(stage.plan) if "call returned" in line]
    assert len(lines) == 1 and "200 times" in lines[0]


def test_births_and_deaths_are_not_pushed_out_by_calls_and_the_story_is_bounded(stage):
    for generation in range(3):
        stage.serve()
        for number in range(60):
            with pytest.raises(errors.NodeRaised):
                stage.pool.call(stage.plan, "contract_probe:fail", "x")
            stage.pool.call(stage.plan, "contract_probe:add", number)
        if generation < 2:
            stage.pool.kill(stage.plan)
    story = stage.pool.story(stage.plan)
    assert len(story) <= MOST_IMPORTANT + MOST_ORDINARY
    for generation in (1, 2, 3):
        assert any(f"#{generation} " in line and "proved" in line for line in story)
    assert sum("kill wanted" in line for line in story) == 2


@over("scripted")
def test_a_thousand_deaths_keep_the_story_bounded_with_the_newest_in_it(timed):
    timed.limited(crash_limit=1000, crash_window=0, stack=0)
    for _ in range(120):
        timed.serve()
        timed.pool.kill(timed.plan)
    story = timed.pool.story(timed.plan)
    assert len(story) <= MOST_IMPORTANT + MOST_ORDINARY
    assert any("#120 " in line for line in story) and not any("#1 " in line for line in story)


@needs("survives_crash")
def test_a_failure_tells_the_life_of_its_worker_in_one_line_without_digests_and_tickets(stage):
    stage.serve()
    with pytest.raises(errors.WorkerCrashed) as caught:
        stage.call("die", "exit")
    assert caught.value.story[-1] in str(caught.value)
    (line,) = caught.value.story
    for fact in ("generation 1: started", "was ready", "call returned", "exited with status 0"):
        assert fact in line
    assert not re.search(r"ticket|[0-9a-f]{16}|→|#1", line)
    assert f"comfy-env story {stage.plan.key}" in str(caught.value)


def test_reasons_and_outcomes_are_closed_lists_each_in_words():
    assert all(reason.value and reason.value == reason.value.strip() for reason in Reason)
    assert len({reason.value for reason in Reason}) == len(Reason)
    assert {kind.value for kind in Kind if kind is not Kind.RETURNED} <= set(vars(errors))


def test_a_reason_that_is_none_is_refused_by_name(stage):
    stage.serve()
    with pytest.raises(errors.PlanError, match="'bored' is not a reason"):
        stage.pool.kill(stage.plan, "bored")


def test_each_line_says_when_which_generation_and_what(stage):
    stage.serve()
    for line in stage.pool.story(stage.plan):
        when, generation, *what = line.split("  ")
        assert when.endswith("s ago") and generation == "#1" and what, line
