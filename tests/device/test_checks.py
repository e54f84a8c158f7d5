"""The checks that `benchmarks.gpu_check` runs on real devices, over a simulated one."""

from __future__ import annotations

import pytest

from benchmarks import gpu_checks
from tests.device.bench import SimBench
from tests.device.kit import device_worker, host_card

pytestmark = pytest.mark.shares("fd")   # a device's memory that was opened stays open for what comes next

FATAL = (gpu_checks.outlives_its_maker, gpu_checks.memory_comes_back)
"""Those that end workers come last, so that the others can share theirs."""


@pytest.fixture(scope="module")
def bench():
    with host_card() as card, device_worker(1) as copying, device_worker(2) as in_place:
        yield SimBench(card, {1: copying, 2: in_place})
        assert card.faults == []


@pytest.mark.parametrize("check", sorted(gpu_checks.CHECKS, key=lambda check: check in FATAL), ids=lambda check: check.__name__)
def test_a_check_for_real_devices_holds_on_a_simulated_one(bench, check, record_property):
    record_property("figures", check(bench))
