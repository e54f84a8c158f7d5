"""Awaited calls: an awaiter that is cancelled leaves, whatever moment its call is in, and the lane goes to the next."""

import asyncio
import threading

import pytest

from comfy_env import CallOptions, EnvPlan, errors
from comfy_env.pool import WorkerPool, lanes
from comfy_env.testing.audit import wait_until
from comfy_env.testing.scripted import HOLD, ScriptedBackend
from tests.pools import pool_over

PLAN = EnvPlan(key="awaited", backend="scripted")


@pytest.fixture
def backend():
    return ScriptedBackend({"m:hold": lambda: HOLD, "m:double": lambda n: 2 * n})


@pytest.fixture
def pool(settings, backend):
    with pool_over(settings, backend) as pool:
        yield pool


def state(pool):
    return pool.seats()[0].env.row.state.value if pool.seats() else "cold"


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_loop_goes_on_while_a_call_is_awaited(pool, backend):
    async def main():
        call = asyncio.ensure_future(pool.call_async(PLAN, "m:hold"))
        ticks = 0
        while not backend.open_calls or ticks < 20:
            await asyncio.sleep(0)
            ticks += 1
        backend.open_calls.pop().reply("done")
        return await call

    assert asyncio.run(main()) == "done"


def test_a_cancelled_awaiter_interrupts_its_running_call(pool, backend):
    async def main():
        call = asyncio.ensure_future(pool.call_async(PLAN, "m:hold"))
        while not backend.open_calls:
            await asyncio.sleep(0.001)
        await cancelled(call)

    asyncio.run(main())
    wait_until(lambda: state(pool) == "ready")
    assert pool.call(PLAN, "m:double", 21) == 42
    assert pool.record(PLAN).generation == 1


def test_a_call_that_was_given_up_before_it_was_asked_for_starts_no_worker(pool, backend, monkeypatch):
    reached, given_up, over = threading.Event(), threading.Event(), threading.Event()

    def late(*args):
        reached.set()
        given_up.wait(30)
        try:
            return lanes.ask(*args)
        finally:
            over.set()

    async def main():
        call = asyncio.ensure_future(pool.call_async(PLAN, "m:double", 1))
        while not reached.is_set():
            await asyncio.sleep(0.001)
        await cancelled(call)
        given_up.set()

    monkeypatch.setattr("comfy_env.pool.pool.ask", late)
    asyncio.run(main())
    assert over.wait(30)
    wait_until(lambda: not pool.seats()[0].tickets)
    assert pool.seats()[0].env.ledger.generation == 0 and state(pool) == "cold"
    monkeypatch.undo()
    assert pool.call(PLAN, "m:double", 2) == 4


def test_a_cancelled_awaiter_withdraws_its_waiting_call_and_leaves_the_running_one(pool, backend):
    async def main():
        first = asyncio.ensure_future(pool.call_async(PLAN, "m:hold"))
        while not backend.open_calls:
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(pool.call_async(PLAN, "m:double", 1))
        while not pool.seats()[0].env.ledger.waiting:
            await asyncio.sleep(0.001)
        await cancelled(second)
        while pool.seats()[0].env.ledger.waiting:
            await asyncio.sleep(0.001)
        backend.open_calls.pop().reply("done")
        return await first

    assert asyncio.run(main()) == "done"
    assert pool.record(PLAN).calls == 1


@pytest.mark.parametrize("moment", range(40))
def test_a_call_cancelled_at_any_moment_of_its_beginning_never_keeps_the_lane(pool, backend, moment):
    """From before its thread has asked for anything to after it was accepted."""
    pool.call(PLAN, "m:double", 1)

    async def main():
        call = asyncio.ensure_future(pool.call_async(PLAN, "m:hold"))
        await asyncio.sleep(0)
        for _ in range(moment * 40):
            pass
        await cancelled(call)

    asyncio.run(main())
    wait_until(lambda: state(pool) == "ready" and not pool.seats()[0].tickets, what="the call is gone")
    assert pool.call(PLAN, "m:double", 2) == 4


def test_a_call_that_leaves_before_it_is_wanted_is_withdrawn_as_soon_as_it_is(pool, backend, monkeypatch):
    gate, reached = threading.Event(), threading.Event()
    real = WorkerPool._serve

    def slow(self, *more):
        reached.set()
        gate.wait(30)
        return real(self, *more)

    monkeypatch.setattr(WorkerPool, "_serve", slow)

    async def main():
        call = asyncio.ensure_future(pool.call_async(PLAN, "m:hold"))
        while not reached.is_set():
            await asyncio.sleep(0.001)
        await cancelled(call)

    asyncio.run(main())
    gate.set()
    wait_until(lambda: pool.seats() and not pool.seats()[0].tickets, what="its ticket is settled")
    assert not backend.open_calls
    monkeypatch.undo()
    assert pool.call(PLAN, "m:double", 2) == 4


def test_a_caller_without_patience_leaves_at_once(pool, backend):
    holder = threading.Thread(target=lambda: pool.call(PLAN, "m:hold"))
    holder.start()
    wait_until(lambda: backend.open_calls)
    with pytest.raises(errors.CallWithdrawn):
        pool.call(PLAN, "m:double", 1, options=CallOptions(wait=0.0))
    backend.open_calls.pop().reply()
    holder.join(30)
