"""Rule 3: a birth is timed from its last sign of life; each verb of it has a limit, and one that hangs is left behind."""

import threading

import pytest

from comfy_env import errors
from comfy_env.testing.stage import LIMIT


def test_a_birth_that_reports_is_accepted_however_long_it_takes(timed):
    """Four minutes with a sign every 50 s, at a limit of 60 s (field case B95)."""
    timed.limited(birth=60)

    def slow(launch):
        for number in range(5):
            timed.advance(50)
            launch.sign(f"importing {number}")

    timed.spy.before["transport"] = slow
    assert timed.call("add", 1, 1) == 2
    assert timed.record.generation == 1
    assert "importing 4" in "\n".join(timed.pool.story(timed.plan))


@pytest.mark.parametrize(("verb", "state", "limit", "error"), [
    ("spawn", "spawning", 10, errors.SpawnFailed),
    ("transport", "joining", 60, errors.BirthSilent),
    ("verify", "proving", 60, errors.TransportRefused),
])
def test_a_birth_that_is_silent_is_ended_at_the_limit_of_its_step(timed, eventually, verb, state, limit, error):
    timed.limited(birth=60, spawn=10, verify=60)
    gate, reached = threading.Event(), threading.Event()

    def hang(subject):
        reached.set()
        gate.wait(LIMIT)

    timed.spy.before[verb] = hang
    call = timed.start("add", 1)
    assert reached.wait(LIMIT) and timed.state() == state
    timed.advance(limit - 1)
    assert not call.done()
    timed.advance(1.5)
    with pytest.raises(error) as caught:
        call.result(LIMIT)
    assert (caught.value.env, caught.value.generation) == (timed.plan.key, 1)
    assert f"{limit:g} s" in caught.value.message
    timed.spy.before.clear()
    gate.set()
    assert timed.call("add", 1, 1) == 2
    assert timed.record.generation == 2


def test_what_arrives_after_its_birth_was_given_up_is_ended(timed, eventually):
    gate, reached = threading.Event(), threading.Event()

    def hang(launch):
        reached.set()
        gate.wait(LIMIT)

    timed.spy.before["spawn"] = hang
    call = timed.start("add", 1)
    assert reached.wait(LIMIT)
    timed.advance(timed.pool.settings.spawn + 1)
    assert isinstance(call.exception(LIMIT), errors.SpawnFailed)
    timed.spy.before.clear()
    gate.set()
    eventually(lambda: timed.spy.processes and timed.spy.processes[0].exit_status() is not None, what="the late process is ended")


def test_each_stage_of_a_birth_is_told(stage):
    stage.serve()
    story = "\n".join(stage.pool.story(stage.plan))
    for word in ("started", "authenticated", "ready"):
        assert f"sign of life: {word}" in story


def test_a_real_worker_that_hangs_before_joining_is_ended_at_the_limit_with_its_output(pool, tmp_path):
    from comfy_env import EnvPlan

    silent = tmp_path / "hangs"
    silent.write_text("#!/bin/sh\necho thinking\nexec sleep 600\n")
    silent.chmod(0o755)
    with pytest.raises(errors.BirthSilent) as caught:
        pool.call(EnvPlan.existing(silent, "hangs", limits={"birth": 0.5}), "jobs:pid")
    assert "thinking" in "\n".join(caught.value.output) and caught.value.pid
