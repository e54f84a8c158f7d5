"""F10, F13, F14, F20, F21: workers that will not end, memory that is not there, names that vanish."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from comfy_env.errors import CallSilent, NodeRaised, Wedged, WorkerCrashed
from comfy_env.pool import endings
from comfy_env.process import shortage
from comfy_env.testing.audit import alive
from comfy_env.values import CallOptions, ExitStatus, Killed
from tests.process.kit import shared_names


@pytest.mark.row("F10")
def test_a_worker_that_is_deaf_and_stopped_itself_is_ended_by_its_limit(ward, fired):
    plan = ward.plan()
    with fired.timed(), pytest.raises(CallSilent):
        ward.call(plan, "ignore_everything", options=CallOptions(silence=0.5))
    fired()
    assert ward.call(plan, "echo", 1) == 1 and ward.alive() == [ward.pool.record(plan).pid]


@pytest.mark.row("F10")
@pytest.mark.parametrize("moment", ["hello", "canary"])
def test_a_worker_that_stops_itself_while_it_is_born_is_ended_by_its_limit(make_ward, fired, moment):
    ward = make_ward(birth=1.0, verify=1.0)
    plan = ward.plan(fault={"when": moment, "how": "stop"})
    with fired.timed(), pytest.raises(Exception, match="1 s|limit|sign of life") as caught:
        ward.call(plan, "echo", 1)
    fired(ward.fired())
    assert type(caught.value).__name__ in ("BirthSilent", "TransportRefused"), caught.value
    assert ward.call(plan, "echo", 1) == 1 and ward.alive() == [ward.pool.record(plan).pid]


@pytest.mark.row("F13")
def test_a_worker_that_will_not_die_is_wedged_by_pid_and_gets_no_twin(make_ward, monkeypatch, fired, eventually):
    ward = make_ward(kill=0.3)
    plan, other = ward.plan(device="cpu"), ward.plan("b")
    pid = ward.call(plan, "me")
    tried = []

    def will_not_die(process, *, nonce, deadline_seconds=2.0):
        tried.append(process.pid)
        return Killed((), None, f"still alive after SIGKILL: {process.pid} (state D)")

    with monkeypatch.context() as patch:
        patch.setattr(endings.tree, "end", will_not_die)
        patch.setattr("comfy_env.backends.local.tree.end", will_not_die)
        ward.pool.kill(plan)
        with fired.timed(), pytest.raises(Wedged) as caught:
            ward.call(plan, "echo", 1)
        assert f"pid {pid}" in str(caught.value) and "cpu" in str(caught.value)
        assert ward.call(other, "echo", 2) == 2, "the host went on"
        assert ward.pool.record(plan).state == "wedged" and ward.spy.spawns == 2
    fired(len(tried))
    ward.pool.kill(plan)
    eventually(lambda: ward.pool.record(plan) is None, what="it was ended after all")
    assert ward.call(plan, "me") != pid


@pytest.mark.row("F14")
def test_a_function_that_finds_no_memory_says_so_and_its_worker_serves_on(ward, fired):
    plan = ward.plan()
    pid = ward.call(plan, "me")
    with fired.timed(), pytest.raises(NodeRaised) as caught:
        ward.call(plan, "eat", 100_000)
    fired()
    assert caught.value.remote_type == "MemoryError" and ward.call(plan, "me") == pid


@pytest.mark.row("F14")
@pytest.mark.parametrize(("counted", "told"), [(0, "mostly that means the system ran out of memory"), (1, "the kernel ended the worker")])
def test_a_worker_that_sigkill_ended_from_outside_points_at_memory(ward, fired, monkeypatch, tmp_path, counted, told):
    """What the kernel's killer does is a SIGKILL from outside and a count; both are played here."""
    counters = tmp_path / "vmstat"
    counters.write_text("oom_kill 3\n")
    monkeypatch.setattr(shortage, "COUNTERS", counters)
    plan = ward.plan(fault={"when": "run", "how": "kill"})
    ward.pool.call(ward.plan("b"), "fault_pack:echo", 1)
    monkeypatch.setattr(shortage, "kills", lambda real=shortage.kills: real() + (counted if ward.fired() else 0))
    with fired.timed(), pytest.raises(WorkerCrashed) as caught:
        ward.call(plan, "echo", 1)
    fired(ward.fired())
    assert told in caught.value.hint and "SIGKILL" in caught.value.status


def test_a_death_by_another_signal_or_by_our_own_kill_does_not_blame_memory():
    assert shortage.hint(ExitStatus(signal=signal.SIGSEGV), 0) == shortage.hint(ExitStatus(code=1), 0) == shortage.hint(None, 0) == ""
    assert shortage.kills() >= 0


def test_a_system_that_does_not_count_is_told_apart_from_none(tmp_path, monkeypatch):
    monkeypatch.setattr(shortage, "COUNTERS", tmp_path / "none")
    assert shortage.kills() == 0


@pytest.mark.row("F20")
def test_arrays_of_a_killed_worker_stay_readable(ward, fired):
    plan = ward.plan()
    arrays = ward.call(plan, "arrays", 20, 300_000)
    pid = ward.pool.record(plan).pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ward.call(plan, "echo", 1) == 1
    fired(ward.pool.record(plan).generation - 1)
    gc.collect()
    assert all(array.size == 300_000 and (array == number % 251).all() for number, array in enumerate(arrays))
    ward.pool.kill(plan)
    assert int(arrays[19].sum()) == 19 * 300_000


OUR_NAMES = "cenv-"   # others belong to other programs of this machine


@pytest.mark.row("F21")
def test_names_that_vanish_from_shared_memory_and_the_run_folder_are_not_missed(ward, fired, eventually):
    before = shared_names()
    plan, payload = ward.plan(), os.urandom(3_000_000)
    for _ in range(3):
        assert ward.call(plan, "echo", payload) == payload
        for name in shared_names() - before:
            if name.startswith(OUR_NAMES):
                os.unlink(f"/dev/shm/{name}")
        for folder in [Path(path) for path in ward.litter()] + list((ward.folder / "run").glob("host-*/worker")):
            fired(len(list(folder.rglob("*"))))
            shutil.rmtree(folder, ignore_errors=True)
        assert ward.call(plan, "echo", payload) == payload
        ward.pool.kill(plan)
        assert ward.call(plan, "echo", payload) == payload
    assert ward.pool.record(plan).generation == 4 and shared_names() <= before


@pytest.mark.row("F20")
def test_a_large_value_is_whole_or_not_there_when_its_worker_is_killed_meanwhile(ward, fired, eventually):
    plan, dice = ward.plan(), random.Random(20)
    for _ in range(20):
        ward.call(plan, "echo", 1)
        pid = ward.pool.record(plan).pid
        timer = threading.Timer(dice.uniform(0, 0.03), os.kill, (pid, signal.SIGKILL))
        timer.start()
        began = time.monotonic()
        try:
            value = ward.call(plan, "blob", 24 << 20)
            assert len(value) == 24 << 20 and value.count(b"x") == len(value)
        except WorkerCrashed:
            fired()
        fired.took(time.monotonic() - began)
        timer.join()
        eventually(lambda dead=pid: not alive(dead), what="it is dead, and not in the middle of the next call")
    assert ward.call(plan, "echo", 2) == 2
