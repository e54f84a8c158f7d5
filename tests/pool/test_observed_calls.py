"""What observers hear of calls: each that began is told to have ended, how, and after how many seconds."""

import pytest

from comfy_env import CallOptions, WorkerPool, errors, hookimpl


class Ear:
    def __init__(self):
        self.started, self.ended = [], []

    @hookimpl
    def comfy_env_call_started(self, call):
        self.started.append(call["ticket"])

    @hookimpl
    def comfy_env_call_ended(self, call):
        self.ended.append(call)


def test_every_call_that_began_is_told_to_have_ended_with_its_kind_and_seconds(settings, plan, eventually):
    ear = Ear()
    with WorkerPool(settings, observers=[ear]) as pool:
        pool.call(plan, "time:sleep", 0.2)
        with pytest.raises(errors.NodeRaised):
            pool.call(plan, "math:sqrt", -1)
        with pytest.raises(errors.CallSilent):
            pool.call(plan, "time:sleep", 60, options=CallOptions(silence=0.3))
        with pytest.raises(errors.WorkerCrashed):
            pool.call(plan, "os:_exit", 3)
        eventually(lambda: len(ear.ended) == 4)
    assert [call["ticket"] for call in ear.ended] == ear.started
    assert [call["kind"] for call in ear.ended] == ["returned", "raised", "silent", "crashed"]
    assert ear.ended[0]["seconds"] >= 0.2 and ear.ended[2]["seconds"] >= 0.3
    assert all(0 <= call["seconds"] < 30 for call in ear.ended)


def test_a_call_that_never_began_is_not_told_to_have_ended(settings, plan):
    ear = Ear()
    with WorkerPool(settings, observers=[ear]) as pool:
        with pytest.raises(errors.ComfyEnvError):
            pool.call(plan.existing("/nowhere/python", "gone"), "os:getpid")
    assert ear.started == ear.ended == []
