"""Six cold environments started at once against six in a row, and what a warm call that does nothing costs."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from comfy_env import EnvPlan, WorkerPool

ENVS = 6
ROUNDS = 5
CALLS = 2000
TARGET = "operator:not_"


def plans() -> list[EnvPlan]:
    return [EnvPlan.existing(sys.executable, f"bench-{number}") for number in range(ENVS)]


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def in_a_row() -> float:
    with WorkerPool() as pool:
        return timed(lambda: [pool.call(plan, TARGET, 0) for plan in plans()])


def together() -> float:
    with WorkerPool() as pool, ThreadPoolExecutor(ENVS) as threads:
        return timed(lambda: list(threads.map(lambda plan: pool.call(plan, TARGET, 0), plans())))


def warm_calls(calls: int = CALLS) -> list[float]:
    """Return the sorted seconds of each of many calls to one warm worker."""
    plan = plans()[0]
    with WorkerPool() as pool:
        for _ in range(50):
            pool.call(plan, TARGET, 0)
        return sorted(timed(lambda: pool.call(plan, TARGET, 0)) for _ in range(calls))


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Return the rows of this benchmark; rounds of both kinds alternate."""
    row, at_once = [], []
    for _ in range(rounds):
        row.append(in_a_row())
        at_once.append(together())
    calls = warm_calls()
    one, other = statistics.median(row), statistics.median(at_once)
    return [
        {"what": f"{ENVS} cold envs in a row", "value": one, "unit": "s", "note": f"median of {rounds}"},
        {"what": f"{ENVS} cold envs at once", "value": other, "unit": "s", "note": f"median of {rounds}"},
        {"what": "at once / in a row", "value": other / one, "unit": "", "note": "aim < 0.6 on 2 cores"},
        {"what": "warm call of nothing, p50", "value": calls[len(calls) // 2] * 1e6, "unit": "us", "note": f"{CALLS} calls"},
        {"what": "warm call of nothing, p99", "value": calls[len(calls) * 99 // 100] * 1e6, "unit": "us", "note": ""},
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(), indent=2) + "\n")
