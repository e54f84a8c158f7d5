"""X12: a backend that breaks its word in every verb: its error is named, and nobody is left."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace

import pytest

from comfy_env import ComfyEnvError
from comfy_env.hooks import hookimpl
from comfy_env.process import tree
from comfy_env.values import Killed
from tests.faults.ward import FaultyBackend

VERBS = ("spawn", "transport", "verify", "release", "kill")
WRONG = {"None": None, "a text": "done", "a dict": {"pid": 7}}


class Bad(FaultyBackend):
    """Breaks its word in one verb: ``acts`` maps it to what is done in the verb's place, given the right thing to do."""

    def __init__(self, **acts):
        self.acts = acts
        self.broke = 0

    def _do(self, verb, right):
        if verb not in self.acts:
            return right()
        self.broke += 1
        return self.acts[verb](right)

    @hookimpl
    def comfy_env_spawn(self, launch):
        return self._do("spawn", lambda: super(Bad, self).comfy_env_spawn(launch))

    @hookimpl
    def comfy_env_transport(self, process, launch):
        return self._do("transport", lambda: super(Bad, self).comfy_env_transport(process, launch))

    @hookimpl
    def comfy_env_verify(self, process, lanes, canary):
        return self._do("verify", lambda: super(Bad, self).comfy_env_verify(process, lanes, canary))

    @hookimpl
    def comfy_env_release(self, process, lanes, want):
        return self._do("release", lambda: super(Bad, self).comfy_env_release(process, lanes, want))

    @hookimpl
    def comfy_env_kill(self, process, reason, replaced):
        return self._do("kill", lambda: super(Bad, self).comfy_env_kill(process, reason, replaced))


def raises(right):
    raise ZeroDivisionError("of a backend")


def live_and_die(make_ward, backend, fired, **settings):
    """Call, release and kill with a bad backend; return what went wrong, and see to it that nobody is left."""
    ward, told = make_ward(backend=backend, **settings), []
    plan = ward.plan()
    for ask in (lambda: ward.call(plan, "echo", 1), lambda: ward.pool.release(plan), lambda: ward.pool.kill(plan)):
        with fired.timed():
            try:
                ask()
            except ComfyEnvError as error:
                told.append(error)
    ward.close()
    assert not ward.alive() and not ward.litter()
    fired(backend.broke)
    return told


@pytest.mark.row("X12")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_raises_is_named_and_leaves_nobody(make_ward, fired, verb):
    told = live_and_die(make_ward, Bad(**{verb: raises}), fired)
    assert verb == "kill" or any(verb in str(error) and "of a backend" in str(error) for error in told), told


@pytest.mark.row("X12")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_answers_the_wrong_type_is_named_and_leaves_nobody(make_ward, fired, verb, wrong):
    told = live_and_die(make_ward, Bad(**{verb: lambda right: WRONG[wrong]}), fired)
    assert verb == "kill" or any(verb in str(error) and "faulty" in str(error) for error in told), told


@pytest.mark.row("X12")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_does_its_work_and_then_answers_wrongly_leaves_nobody(make_ward, fired, verb):
    """The worst of a spawn: a process lives that the core was never told of. Its nonce tells."""
    live_and_die(make_ward, Bad(**{verb: lambda right: right() and None}), fired)


@pytest.mark.row("X12")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_hangs_is_given_up_at_its_limit_and_leaves_nobody(make_ward, fired, eventually, verb):
    done = threading.Event()

    def hangs(right):
        done.wait(60)
        return right()

    limits = {"spawn": 20.0, "birth": 20.0, "verify": 20.0, "release": 20.0, "kill": 5.0, "command_lock": 2.0}
    limits["birth" if verb == "transport" else verb] = 0.4
    backend = Bad(**{verb: hangs})
    ward = make_ward(backend=backend, **limits)
    plan = ward.plan()
    try:
        for ask in (lambda: ward.call(plan, "echo", 1), lambda: ward.pool.release(plan), lambda: ward.pool.kill(plan)):
            with fired.timed(), contextlib.suppress(ComfyEnvError):   # by name; which one depends on the verb
                ask()
    finally:
        done.set()
    fired(backend.broke)
    assert fired.worst < 10
    ward.close()
    eventually(lambda: not ward.alive(), what="what arrived late was ended")


@pytest.mark.row("X12")
@pytest.mark.parametrize("lie", [{"cpu": "0" * 64}, {"cpu": None}, {"echo": "0" * 64}])
def test_a_lie_about_the_proof_refuses_the_worker(make_ward, fired, lie):
    told = live_and_die(make_ward, Bad(verify=lambda right: replace(right(), **lie)), fired)
    assert type(told[0]).__name__ == "TransportRefused"


def killed_twice(right):
    right()
    return right()


def reaps_by_itself(right):
    killed = right()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    return killed


KILLS = {
    "forgets to kill": lambda right: Killed(),
    "kills twice": killed_twice,
    "kills and then raises": lambda right: right() and raises(right),
    "reaps whom it finds": reaps_by_itself,
}


@pytest.mark.row("X12")
@pytest.mark.parametrize("how", KILLS)
def test_a_kill_that_is_not_what_it_says_leaves_nobody_and_the_next_birth_is_sound(make_ward, fired, how):
    backend = Bad(kill=KILLS[how])
    ward = make_ward(backend=backend)
    plan = ward.plan()
    for number in range(3):
        assert ward.call(plan, "echo", number) == number
        pid = ward.pool.record(plan).pid
        with fired.timed():
            assert ward.pool.kill(plan)
        assert not ward.alive() and pid
    fired(backend.broke)


@pytest.mark.row("X12")
def test_a_backend_that_ends_another_childs_status_costs_that_worker_nothing(make_ward, fired):
    """Somebody in this process collects every child: statuses are lost, workers are not."""
    ward = make_ward()
    plan = ward.plan()
    pid = ward.call(plan, "me")
    tree_before = tree.end
    with pytest.raises(ComfyEnvError) as caught:
        thread = threading.Thread(target=lambda: os.waitpid(pid, 0))
        thread.start()
        ward.call(plan, "die", 9)
    thread.join(10)
    fired()
    assert "lost" in caught.value.status or "signal 9" in caught.value.status
    assert ward.call(plan, "echo", 1) == 1 and tree.end is tree_before
