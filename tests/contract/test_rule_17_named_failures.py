"""Rule 17: the call in flight fails by name, with the real status and last words; the next call gets a new worker."""

import os
import signal
import sys

import pytest

from comfy_env import errors
from comfy_env.testing.audit import wait_until
from comfy_env.testing.stage import LIMIT, needs
from comfy_env.values import ExitStatus
from tests.contract.worlds import REAL, over

DEATHS = [
    ("jobs:kill_self", (), "SIGKILL", "last words before the kill"),
    ("jobs:segfault", (), "SIGSEGV", "last words before the fault"),
    ("jobs:abort", (), "SIGABRT", ""),
    ("jobs:exit_now", (0,), "exited with status 0", "last words before the exit"),
    ("jobs:exit_now", (7,), "exited with status 7", "last words before the exit"),
]


@needs("survives_crash")
@pytest.mark.parametrize(("how", "told"), [("exit", "exited with status 0"), ("kill", "SIGKILL"), ("segv", "SIGSEGV")])
def test_a_death_in_mid_call_tells_env_generation_and_real_status(stage, how, told):
    stage.serve()
    with pytest.raises(errors.WorkerCrashed) as caught:
        stage.call("die", how)
    error = caught.value
    assert (error.env, error.generation, error.pid) == (stage.plan.key, 1, stage.spy.processes[0].pid)
    assert told in error.status and told in str(error)
    assert "None" not in error.status and error.story
    assert stage.call("add", 1, 1) == 2 and stage.record.generation == 2


@pytest.mark.parametrize(("target", "args", "status", "words"), DEATHS)
def test_a_worker_that_dies_fails_its_call_with_its_last_words(pool, plan, target, args, status, words):
    pid = pool.call(plan, "jobs:pid")
    with pytest.raises(errors.WorkerCrashed) as caught:
        pool.call(plan, target, *args)
    error = caught.value
    assert (error.env, error.generation, error.pid) == (plan.key, 1, pid)
    assert status in error.status
    assert words in "\n".join(error.output)
    assert pool.call(plan, "jobs:pid") != pid
    assert pool.record(plan).generation == 2


@needs("survives_crash")
def test_a_failed_call_is_not_retried(stage):
    stage.serve()
    with pytest.raises(errors.WorkerCrashed):
        stage.call("die", "exit")
    assert stage.spy.spawns == 1, "nobody asked again"


@needs("survives_crash")
def test_callers_that_wait_behind_a_death_are_served_by_the_next_generation(stage, eventually):
    held = stage.held()
    waiting = [stage.start("add", number) for number in range(8)]
    eventually(lambda: len(stage.seat.env.ledger.waiting) == 8)
    end = getattr(stage.spy.processes[0], "end", None)
    if end:
        end(ExitStatus(signal=9))
    else:
        os.kill(stage.record.pid, signal.SIGKILL)
    with pytest.raises(errors.WorkerCrashed, match="SIGKILL"):
        held.result(LIMIT)
    assert [call.result(LIMIT) for call in waiting] == list(range(8))
    assert stage.record.generation == 2


@over(*REAL)
def test_the_last_40_lines_of_its_output_are_told(stage):
    with pytest.raises(errors.WorkerCrashed) as caught:
        stage.run("jobs:noise_then_die", 100)
    assert caught.value.output == tuple(f"line {number}" for number in range(60, 100))


def test_a_function_that_raises_fails_its_own_call_only(stage):
    with pytest.raises(errors.NodeRaised, match="no such cat"):
        stage.call("fail", "no such cat")
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 1, "an exception costs no worker"


def test_an_exception_of_the_function_keeps_its_class_message_and_traceback(pool, plan):
    with pytest.raises(errors.NodeRaised) as caught:
        pool.call(plan, "jobs:fail", "the reason")
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.args == ("the reason",)
    assert "jobs.py" in caught.value.remote_traceback
    assert pool.record(plan).generation == 1


@over(*REAL)
def test_a_worker_killed_while_idle_is_replaced_unseen(stage, eventually):
    pid = stage.call("whoami")["pid"]
    for generation in range(2, 12):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: stage.spy.processes[-1].exit_status(), LIMIT)
        died, pid = pid, stage.call("whoami")["pid"]
        assert pid != died and stage.record.generation == generation


@over(*REAL)
def test_a_worker_that_replaces_its_program_is_ended_and_the_error_says_so(stage, eventually):
    """The new program closed the lane and goes on under the same number (field of F4)."""
    pid = stage.call("whoami")["pid"]
    with pytest.raises(errors.WorkerCrashed) as caught:
        stage.run("jobs:become", sys.executable, "-I", "-c", "import time; time.sleep(600)")
    assert "replaced its program" in caught.value.message and "time.sleep(600)" in caught.value.message
    assert caught.value.pid == pid
    assert stage.call("whoami")["pid"] != pid
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), what="the new program is ended too")


@over(*REAL)
def test_twenty_deaths_in_a_row_each_tell_their_status(stage):
    for generation in range(1, 21):
        with pytest.raises(errors.WorkerCrashed) as caught:
            stage.run("jobs:abort")
        assert "SIGABRT" in caught.value.status
        assert caught.value.generation == generation
