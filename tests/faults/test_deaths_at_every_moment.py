"""F8, F9: a worker may end in any way at any moment; its call is told how, the next one is served by a new worker."""

from __future__ import annotations

import os
import signal

import pytest

from comfy_env import ComfyEnvError
from comfy_env.errors import NodeRaised, WorkerCrashed
from tests.faults.fake_worker import MOMENTS, WAYS
from tests.faults.ward import zombies

BORN = MOMENTS[MOMENTS.index("idle"):]
RAISED = {"run", "callback"}   # where sys.exit is raised in the called function, it is the call's failure and nobody's death


def ask_host(ward, plan):
    from comfy_env.values import CallOptions

    return ward.call(plan, "ask", "name", options=CallOptions(callbacks={"name": lambda: "host"}))


CALLS = {
    "callback": ask_host,
    "receive": lambda ward, plan: ward.call(plan, "echo", list(range(400_000))),   # travels within the frame
    "reply body": lambda ward, plan: ward.call(plan, "blob", 4_000_000),
}


def call_for(moment, ward, plan):
    return CALLS.get(moment, lambda ward, plan: ward.call(plan, "echo", 1))(ward, plan)


def outlives(moment: str, how: str) -> bool:
    return how == "sys.exit" and moment in RAISED


@pytest.mark.row("F8")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_ends_is_told_with_its_real_status_and_replaced(ward, fired, eventually, moment, how):
    plan = ward.plan(fault={"when": moment, "how": how})
    if moment == "idle":
        assert ward.call(plan, "echo", 1) == 1
        eventually(lambda: ward.fired() and ward.pool.record(plan) is None, what="the idle worker's end is seen")
    else:
        with fired.timed(), pytest.raises(NodeRaised if outlives(moment, how) else ComfyEnvError) as caught:
            call_for(moment, ward, plan)
        if not outlives(moment, how):
            assert WAYS[how] in caught.value.status, caught.value
            assert (caught.value.env, caught.value.generation) == ("a", 1) and caught.value.pid
    fired(ward.fired())
    assert ward.call(plan, "echo", "next") == "next"
    record = ward.pool.record(plan)
    assert record.generation == (1 if outlives(moment, how) else 2)
    assert ward.alive() == [record.pid] and not zombies() and len(ward.litter()) == 1


@pytest.mark.row("F9")
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_worker_that_ends_within_a_reply_of_64_mib_gives_an_error_and_no_half_value(ward, fired, share):
    plan = ward.plan(fault={"when": "reply body", "how": "kill", "share": share})
    with fired.timed(), pytest.raises(ComfyEnvError) as caught:
        ward.call(plan, "blob", 64 << 20)
    fired(ward.fired())
    assert "signal 9" in caught.value.status and type(caught.value).__name__ == "WorkerCrashed"
    assert len(ward.call(plan, "blob", 64 << 20)) == 64 << 20


@pytest.mark.row("F8")
def test_a_call_never_meets_a_worker_that_is_dead_already(ward, fired):
    plan = ward.plan()
    for number in range(30):
        assert ward.call(plan, "echo", number) == number
        pid = ward.pool.record(plan).pid
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)   # dead for sure, and perhaps not noticed yet
        fired()
        assert ward.call(plan, "me") != pid


@pytest.mark.row("F9")
@pytest.mark.parametrize("nth", [1, 50, 99])
def test_a_worker_that_ends_while_it_fills_shared_memory_gives_an_error_and_no_half_value(ward, fired, nth):
    plan, size = ward.plan(fault={"when": "arena", "how": "kill", "nth": nth, "size": 671_000}), 671_000
    with fired.timed(), pytest.raises(WorkerCrashed) as caught:
        ward.call(plan, "arrays", 100, size)
    fired(ward.fired())
    assert "signal 9" in caught.value.status
    assert [array.size for array in ward.call(plan, "arrays", 100, size)] == [size] * 100
