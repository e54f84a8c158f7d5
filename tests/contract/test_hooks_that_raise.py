"""What a caller's own hook raises is the caller's: it is never taken for the lane's, the worker's or the pool's."""

import asyncio

import pytest

from comfy_env import CallOptions, errors

SOON = CallOptions(wait=20)
OURS = [errors.LaneLost, errors.FrameDamaged, errors.WorkerCrashed, errors.EncodeRefused, errors.DecodeRefused, errors.PoolClosed]


def raiser(error):
    def raises(*_):
        raise error

    return raises


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_a_progress_hook_that_raises_one_of_our_own_errors_costs_no_worker(pool, plan, kind):
    mine = kind("the hook's own")
    with pytest.raises(kind) as caught:
        pool.call(plan, "jobs:report_slowly", 3000, 0.01, options=CallOptions(on_progress=raiser(mine)))
    assert caught.value is mine
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2
    assert pool.record(plan).generation == 1


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_a_callback_that_raises_one_of_our_own_errors_costs_no_worker(pool, plan, kind):
    mine = kind("the callback's own")
    with pytest.raises(errors.NodeRaised, match=f"{kind.__name__}: the callback's own") as caught:
        pool.call(plan, "jobs:call_back", "f", options=CallOptions(callbacks={"f": raiser(mine)}))
    assert caught.value.__cause__ is mine
    assert mine.__traceback__ is not None
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2
    assert pool.record(plan).generation == 1


@pytest.mark.parametrize("hook", ["on_progress", "callback"])
def test_an_awaited_call_whose_hook_raises_stop_iteration_ends_by_name(pool, plan, hook):
    if hook == "on_progress":
        target, options = ("jobs:report_slowly", 3000, 0.01), CallOptions(on_progress=raiser(StopIteration("enough")))
    else:
        target, options = ("jobs:call_back", "f"), CallOptions(callbacks={"f": raiser(StopIteration("enough"))})

    async def main():
        return await asyncio.wait_for(pool.call_async(plan, *target, options=options), 30)

    with pytest.raises(errors.CallFailed, match="StopIteration: enough") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, StopIteration)
    assert isinstance(caught.value, RuntimeError) is (hook == "on_progress")
    assert pool.call(plan, "jobs:add", 1, 1, options=SOON) == 2
    assert pool.record(plan).generation == 1
