"""Rule 17: the call in flight fails by name, with the real status; the next call gets a new worker."""

import os
import signal

import pytest

from comfy_env import errors

DEATHS = [
    ("jobs:kill_self", (), "SIGKILL", "last words before the kill"),
    ("jobs:segfault", (), "SIGSEGV", "last words before the fault"),
    ("jobs:abort", (), "SIGABRT", ""),
    ("jobs:exit_now", (0,), "exited with status 0", "last words before the exit"),
    ("jobs:exit_now", (7,), "exited with status 7", "last words before the exit"),
]


@pytest.mark.parametrize(("target", "args", "status", "words"), DEATHS)
def test_a_worker_that_dies_fails_its_call_with_the_real_status(pool, plan, target, args, status, words):
    pid = pool.call(plan, "jobs:pid")
    with pytest.raises(errors.WorkerCrashed) as caught:
        pool.call(plan, target, *args)
    error = caught.value
    assert (error.env, error.generation, error.pid) == (plan.key, 1, pid)
    assert status in error.status
    assert words in "\n".join(error.output)
    assert pool.call(plan, "jobs:pid") != pid
    assert pool.record(plan).generation == 2


def test_an_exception_of_the_function_keeps_its_class_message_and_traceback(pool, plan):
    with pytest.raises(errors.NodeRaised) as caught:
        pool.call(plan, "jobs:fail", "the reason")
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.args == ("the reason",)
    assert "jobs.py" in caught.value.remote_traceback
    assert pool.record(plan).generation == 1, "an exception costs no worker"


def test_a_worker_killed_while_idle_is_replaced_unseen(pool, plan, eventually):
    pid = pool.call(plan, "jobs:pid")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: pool.record(plan) is None or pool.record(plan).pid != pid)
    assert pool.call(plan, "jobs:pid") != pid
    assert pool.record(plan).generation == 2


def test_thirty_deaths_in_a_row_each_tell_their_status(pool, make_plan):
    plan = make_plan("often", limits={"crash_limit": 1000})
    for generation in range(1, 31):
        with pytest.raises(errors.WorkerCrashed) as caught:
            pool.call(plan, "jobs:abort")
        assert "SIGABRT" in caught.value.status
        assert caught.value.generation == generation
