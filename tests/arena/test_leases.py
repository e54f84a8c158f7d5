"""Blocks come back when the last holder lets go, whoever that is and however it ends."""

from __future__ import annotations

import gc
import os
import signal

import numpy as np
import pytest

from comfy_env.errors import DecodeRefused
from tests.arena.kit import arena_worker, descriptors, mapped_segments, shared_bytes
from tests.transport.workers import until

COUNT = 3 * 1024 * 1024 // 4   # float32: 3 MiB


def test_a_result_the_host_dropped_frees_its_block_with_the_next_call(worker):
    results = [worker.value("arena_pack:ones", COUNT) for _ in range(4)]
    assert worker.session.tensors == 4
    results.clear()
    assert worker.session.tensors == 0
    full = shared_bytes(worker.process.pid)
    for _ in range(20):
        worker.value("arena_pack:ones", COUNT)
    assert shared_bytes(worker.process.pid) == full


@pytest.mark.parametrize("calls", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_and_descriptors_are_flat_over_many_calls_of_3_mib_both_ways(worker, record_property, calls):
    value = np.ones(COUNT, "f4")
    for _ in range(3):
        worker.value("arena_pack:plus_one", value)
    before = shared_bytes(worker.process.pid), shared_bytes(), descriptors(), descriptors(worker.process.pid), mapped_segments()
    for _ in range(calls):
        worker.value("arena_pack:plus_one", value)
    after = shared_bytes(worker.process.pid), shared_bytes(), descriptors(), descriptors(worker.process.pid), mapped_segments()
    record_property("shared bytes of the worker", after[0])
    assert after == before
    assert worker.session.traffic["spilled"] == 0


def test_a_view_keeps_the_whole_and_a_value_in_a_cycle_is_freed_too(worker):
    view = worker.value("arena_pack:ones", COUNT)[10:20]
    cycle: list = [worker.value("arena_pack:ones", COUNT)]
    cycle.append(cycle)
    assert worker.session.tensors == 2
    del cycle
    gc.collect()
    assert worker.session.tensors == 1
    assert view.sum() == 10


def test_inputs_come_back_with_the_reply_of_their_call(worker):
    value = np.ones(COUNT, "f4")
    worker.value("arena_pack:total", value)
    assert worker.session.traffic["lent"] == 0
    worker.value("arena_pack:keep", value)
    worker.value("arena_pack:nothing")
    assert worker.session.traffic["lent"] == 1
    worker.value("arena_pack:let_go")
    assert worker.session.traffic["lent"] == 0


def test_inputs_come_back_from_a_call_that_raised(worker):
    answer = worker.call("arena_pack:total", [np.ones(COUNT, "f4")])
    assert answer.error is not None
    worker.value("arena_pack:nothing")
    assert worker.session.traffic["lent"] == 0


def test_a_result_that_cannot_be_decoded_gives_its_block_back(worker, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("comfy_env.transport.arrays.load_numpy", lambda: None)
        patched.setattr("comfy_env.transport.codec._LOADERS", {"numpy": lambda: None})
        for _ in range(5):
            with pytest.raises(DecodeRefused):
                worker.value("arena_pack:ones", COUNT)
    gc.collect()
    assert worker.session.tensors == 0
    full = shared_bytes(worker.process.pid)
    worker.value("arena_pack:ones", COUNT)
    assert shared_bytes(worker.process.pid) <= full


def test_a_call_refused_at_the_sender_lends_nothing(worker):
    answer = worker.call("operator:getitem", [np.ones(COUNT, "f4")], "x")
    assert answer.error is not None
    before = worker.session.traffic["lent"]
    with pytest.raises(Exception, match="cannot cross"):
        worker.value("arena_pack:nothing", np.ones(COUNT, "f4"), object())
    assert worker.session.traffic["lent"] == before


def test_a_release_gives_unused_pages_back_to_the_system(worker):
    from comfy_env.transport.commands import release
    from comfy_env.values import Want

    worker.value("arena_pack:plus_one", np.ones(COUNT, "f4"))
    assert shared_bytes() > 2 * COUNT
    assert worker.lanes is not None
    release(worker.process, worker.lanes, Want(None, "idle"))
    assert shared_bytes() == shared_bytes(worker.process.pid) == 0
    assert worker.value("arena_pack:plus_one", np.ones(COUNT, "f4")).sum() == 2 * COUNT


# ---------------------------------------------------------------- deaths

def _end(worker):
    os.kill(worker.process.pid, signal.SIGKILL)
    until(lambda: worker.process.exit_status())
    worker.session.close()


def test_a_tensor_of_a_killed_worker_stays_readable_and_its_memory_goes_with_the_last_view():
    before = descriptors(), mapped_segments()
    with arena_worker() as worker:
        made = worker.value("arena_pack:ones", COUNT)
        view = made[5:]
        _end(worker)
    assert made.sum() == COUNT
    made += 1
    del made
    assert view[0] == 2
    assert mapped_segments() > before[1]
    del view, worker
    gc.collect()
    assert (descriptors(), mapped_segments()) == before


@pytest.mark.parametrize("dropped", ["before the death", "after it"])
def test_what_nobody_looks_at_of_a_dead_workers_memory_goes_back_although_another_part_is_looked_at(dropped):
    before = shared_bytes()
    with arena_worker() as worker:
        kept, *others = [worker.value("arena_pack:ones", COUNT) for _ in range(9)]
        if dropped == "before the death":
            others.clear()
        _end(worker)
        if dropped == "after it":
            assert shared_bytes() - before >= 9 * kept.nbytes
            others.clear()
        del worker
        gc.collect()
        assert kept.nbytes <= shared_bytes() - before < 2 * kept.nbytes
        assert kept.sum() == COUNT


def test_what_one_worker_looks_at_outlives_the_worker_that_made_it_and_the_hosts_interest():
    with arena_worker(env="b") as b:
        with arena_worker(env="a") as a:
            made = a.value("arena_pack:ones", COUNT)
            b.value("arena_pack:keep", made)
            del made
            _end(a)
        gc.collect()
        assert b.value("arena_pack:kept_totals") == [COUNT]
        b.value("arena_pack:let_go")
        assert b.session.traffic["lent"] == 0
        gc.collect()
        b.value("arena_pack:nothing")
        assert mapped_segments(b.process.pid) == _own_segments(b)


def _own_segments(worker) -> int:
    """How many segments a worker maps that only it and the host share."""
    return 2


def test_what_is_passed_on_keeps_its_makers_block_until_the_last_holder_let_go():
    with arena_worker(env="a") as a, arena_worker(env="b") as b:
        made = a.value("arena_pack:ones", COUNT)
        b.value("arena_pack:keep", made)
        del made
        assert a.session.tensors == 1
        b.value("arena_pack:let_go")
        assert a.session.tensors == 0


def test_a_worker_that_dies_gives_back_what_it_looked_at_and_nothing_else():
    with arena_worker(env="a") as a:
        made = a.value("arena_pack:ones", COUNT)
        other = a.value("arena_pack:ones", COUNT)
        with arena_worker(env="b") as b:
            b.value("arena_pack:keep", made)
            del made
            assert a.session.tensors == 2
            b.session.close()
        gc.collect()
        assert a.session.tensors == 1
        assert other.sum() == COUNT


def test_many_generations_of_a_maker_leave_nothing_with_the_one_that_looked():
    with arena_worker(env="b") as b:
        b.value("arena_pack:nothing")
        before = descriptors(b.process.pid), descriptors()
        for generation in range(1, 5):
            with arena_worker(env="a", generation=generation) as a:
                assert b.value("arena_pack:total", a.value("arena_pack:ones", COUNT)) == COUNT
                a.session.close()
            del a
            gc.collect()
        b.value("arena_pack:nothing")
        b.value("arena_pack:nothing")
        assert (descriptors(b.process.pid), descriptors()) == before
