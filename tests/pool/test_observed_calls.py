"""What observers hear of calls: each that began is told to have ended, how, and after how many seconds."""

import threading
from concurrent.futures import ThreadPoolExecutor

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


class Held:
    """Hears everything in one thread's time: it stays in `worker_proved` until it may go on."""

    def __init__(self):
        self.heard, self.may_go = [], threading.Event()

    @hookimpl
    def comfy_env_worker_born(self):
        self.heard.append("born")

    @hookimpl
    def comfy_env_worker_proved(self):
        assert self.may_go.wait(20)
        self.heard.append("proved")

    @hookimpl
    def comfy_env_call_started(self):
        self.heard.append("started")

    @hookimpl
    def comfy_env_call_ended(self):
        self.heard.append("ended")


def test_what_happened_is_told_in_the_order_in_which_it_did_however_long_an_observer_takes(settings, plan, eventually):
    held = Held()
    with WorkerPool(settings, observers=[held]) as pool:
        assert pool.call(plan, "math:sqrt", 4) == 2
        assert held.heard in ([], ["born"])
        held.may_go.set()
        eventually(lambda: len(held.heard) == 4)
    assert held.heard == ["born", "proved", "started", "ended"]


class Asker:
    """Makes a call of its own, on another thread, when it hears of one's end."""

    def __init__(self):
        self.pool = self.plan = self.answer = None

    @hookimpl
    def comfy_env_call_ended(self):
        if self.answer is None:
            self.answer = 0.0
            with ThreadPoolExecutor(1) as thread:
                self.answer = thread.submit(self.pool.call, self.plan, "math:sqrt", 9, options=CallOptions(wait=20)).result(20)


def test_an_observer_may_wait_for_another_threads_call_of_the_same_environment(settings, plan):
    asker = Asker()
    with WorkerPool(settings, observers=[asker]) as pool:
        asker.pool, asker.plan = pool, plan
        assert pool.call(plan, "math:sqrt", 4) == 2
        assert asker.answer == 3
