"""What a pool makes of a device's proof: the row, the story, the observers and the log say which way tensors go."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from comfy_env import EnvPlan, WorkerPool
from comfy_env.backends.local import LocalBackend
from comfy_env.errors import WorkerCrashed
from comfy_env.hooks import Registry, hookimpl
from comfy_env.settings import Settings
from comfy_env.transport.session import session_of
from tests.device.kit import ROOTS, host_card, ramp

pytestmark = pytest.mark.shares("fd")   # a device's memory that was opened stays open for what comes next
COUNT = 100_000


class SimBackend(LocalBackend):
    """Gives each of its workers a simulated device before it is proved."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts

    @hookimpl
    def comfy_env_verify(self, process: Any, lanes: Any, canary: Any) -> Any:
        message = {"target": "sim_card:install", "args": (), "kwargs": self.facts, "node": None}
        session_of(lanes, process).call(message, request=1 << 61, generation=lanes.hello["generation"])
        return super().comfy_env_verify(process, lanes, canary)


class Heard:
    def __init__(self) -> None:
        self.whys: list[str] = []

    @hookimpl
    def comfy_env_worker_demoted(self, why: str) -> None:
        self.whys.append(why)


@pytest.fixture
def card():
    with host_card() as card:
        yield card
        assert card.faults == []


def _pool(tmp_path, heard, settings=None, **facts):
    registry = Registry(find=lambda group: ())
    registry.register("simulated", SimBackend(**facts), owner="this test")
    settings = settings or Settings.read({"COMFY_ENV_RUNTIME": str(tmp_path)})
    return WorkerPool(settings, registry=registry, observers=(heard,))


PLAN = EnvPlan.existing(sys.executable, key="sim", backend="simulated", import_roots=ROOTS)


def test_a_proved_device_leaves_the_row_as_it_is_and_a_crash_loses_no_tensor(tmp_path, card):
    heard = Heard()
    with _pool(tmp_path, heard) as pool:
        made = pool.call(PLAN, "gpu_guest:plus_one", card.place(ramp(COUNT), 0))
        assert pool.record(PLAN).gpu_zero_copy_ok is True and heard.whys == []
        assert pool.call(PLAN, "sim_card:figures")["exports"] == 4   # the echo of the canary, and the result
        with pytest.raises(WorkerCrashed, match="status 9"):
            pool.call(PLAN, "gpu_guest:die", made)
        assert torch.equal(made.cpu(), ramp(COUNT) + 1)
        assert torch.equal(pool.call(PLAN, "gpu_guest:plus_one", made).cpu(), ramp(COUNT) + 2)
        assert pool.record(PLAN).generation == 2


def test_a_device_that_cannot_be_shared_demotes_the_row_and_says_so_once(tmp_path, card, caplog):
    heard = Heard()
    with _pool(tmp_path, heard, facts={"torch": "simulated", "allocator": "async"}) as pool, caplog.at_level("WARNING"):
        for _ in range(3):
            back = pool.call(PLAN, "gpu_guest:plus_one", card.place(ramp(COUNT), 0))
            assert torch.equal(back.cpu(), ramp(COUNT) + 1) and str(back.device) == "cuda:0"
        assert pool.record(PLAN).gpu_zero_copy_ok is False
        why = "allocator is native here and async in the worker"
        assert len(heard.whys) == 1 and why in heard.whys[0]
        assert sum("demoted" in record.message and why in record.message for record in caplog.records) == 1
        assert any("demoted" in line for line in pool.story(PLAN))
        pool.kill(PLAN)
        pool.call(PLAN, "gpu_guest:nothing")
        assert pool.record(PLAN).gpu_zero_copy_ok is True   # of the next generation nothing is known yet


def test_an_environment_may_have_its_own_way_with_devices(tmp_path, card):
    heard = Heard()
    with _pool(tmp_path, heard) as pool:
        plan = EnvPlan.existing(sys.executable, key="off", backend="simulated", import_roots=ROOTS, limits={"gpu": 0})
        pool.call(plan, "gpu_guest:nothing", card.place(ramp(COUNT), 0))
        assert heard.whys and "COMFY_ENV_GPU" in heard.whys[0]
        assert pool.record(plan).gpu_zero_copy_ok is False
