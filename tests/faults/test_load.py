"""L1 to L4, L6: many calls, many births, many deaths; nothing grows, nothing is mixed up, nothing is left."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from comfy_env.errors import WorkerCrashed
from comfy_env.hooks import hookimpl
from tests.faults.hosts import run_host, twins
from tests.faults.ward import zombies

MORE = 12_000   # kilobytes that count as flat: an allocator's own unrest


def own_usage() -> tuple[int, int]:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * resource.getpagesize() // 1024, len(os.listdir("/proc/self/fd"))


@pytest.mark.row("L1")
@pytest.mark.parametrize("calls", [6_400, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.deadline(1200)])])
def test_many_calls_get_their_own_answers_and_nothing_grows(ward, fired, record_property, calls):
    plans = [ward.plan(f"e{number}") for number in range(4)]
    wrong: list[object] = []

    def caller(number: int, share: int) -> None:
        dice = random.Random(number)
        for turn in range(share):
            value = (number, turn, dice.random())
            if ward.call(plans[turn % 4], "echo", value) != value:
                wrong.append(value)

    def round_of(total: int) -> list[tuple[int, int]]:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(caller, range(8), [total // 8] * 8))
        return [own_usage(), *(ward.call(plan, "usage") for plan in plans)]

    before = round_of(calls // 4)
    with fired.timed():
        after = round_of(calls * 3 // 4)
    fired(calls)
    record_property("usage before and after", [before, after])
    assert not wrong
    assert all(now[0] - then[0] < MORE and now[1] == then[1] for then, now in zip(before, after, strict=True)), (before, after)
    assert sum(record.calls for record in ward.pool.records()) == calls + 2 * len(plans)
    assert ward.spy.spawns == 4


class Gate:
    """Lets a birth go on only once all others have come as far."""

    def __init__(self, births: int) -> None:
        self.barrier = threading.Barrier(births)

    @hookimpl(wrapper=True)
    def comfy_env_transport(self, process, launch):
        self.barrier.wait(30)
        return (yield)


@pytest.mark.row("L2")
def test_six_cold_environments_are_born_side_by_side(make_ward, fired):
    ward = make_ward(wrappers=(Gate(6),))
    plans = [ward.plan(f"e{number}") for number in range(6)]
    with fired.timed(), ThreadPoolExecutor(6) as threads:
        pids = list(threads.map(lambda plan: ward.call(plan, "me"), plans))
    fired(ward.spy.spawns)
    assert len(set(pids)) == ward.spy.spawns == 6


@pytest.mark.row("L3")
def test_sixty_four_threads_on_one_cold_environment_make_one_spawn(ward, fired):
    plan, start = ward.plan(), threading.Barrier(64)

    def call(number: int) -> tuple[int, int]:
        start.wait(30)
        return ward.call(plan, "echo", number), ward.call(plan, "me")

    with fired.timed(), ThreadPoolExecutor(64) as threads:
        answers = list(threads.map(call, range(64)))
    fired(len(answers))
    assert [value for value, _ in answers] == list(range(64)) and len({pid for _, pid in answers}) == 1
    assert ward.spy.spawns == 1


@pytest.mark.row("L4")
@pytest.mark.parametrize("cycles", [25, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.deadline(1800)])])
def test_crashes_and_respawns_leave_one_worker_and_no_litter(ward, fired, cycles):
    plan = ward.plan()
    assert ward.call(plan, "echo", 0) == 0
    folders, fds = len(ward.litter()), own_usage()[1]
    for cycle in range(1, cycles + 1):
        with fired.timed():
            with pytest.raises(WorkerCrashed) as caught:
                ward.call(plan, "die", signal.SIGKILL)
            assert ward.call(plan, "echo", cycle) == cycle
        fired()
        record = ward.pool.record(plan)
        assert caught.value.generation == cycle and record.generation == cycle + 1
        assert twins(ward.spy.launches[-1].host_nonce) == [record.pid]
    assert (len(ward.litter()), own_usage()[1], zombies()) == (folders, fds, [])


BIG = """
import os, resource, sys
import numpy
from tests.process.kit import shared_names
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
before = shared_names()
pool, plan = make_pool(), make_plan("big")
size = int(arguments[0])
reply = pool.call(plan, "fault_pack:arrays", 1, size)[0]
assert reply.nbytes == size and not reply[::4096].any(), "another content"
many = pool.call(plan, "fault_pack:arrays", 500, 70_000)
assert [int(a[0]) for a in many] == [n % 251 for n in range(500)] == [int(a[-1]) for a in many]
tell(reply=reply.nbytes, many=len(many), names=sorted(shared_names() - before))
pool.close()
"""


@pytest.mark.row("L6")
@pytest.mark.parametrize("size", [1 << 27, pytest.param(1 << 31, marks=[pytest.mark.long, pytest.mark.deadline(300)])])
def test_a_large_reply_and_many_arrays_arrive_with_few_descriptors_and_little_shared_memory(tmp_path, fired, size):
    with fired.timed():
        told = run_host(BIG, tmp_path, size, shared_memory="64m")
    fired(1 + told["many"])
    assert (told["reply"], told["many"], told["names"]) == (size, 500, [])
