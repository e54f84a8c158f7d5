"""Workers and a host with a simulated device."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from comfy_env.transport import devices
from tests.transport.workers import Started, joined

ROOTS = (str(Path(__file__).parent / "pack"), str(Path(__file__).parents[2] / "benchmarks" / "gpu_guest"))


def sim_card() -> Any:
    """Return the module of the simulated device as it is imported here."""
    if "sim_card" not in sys.modules:
        spec = importlib.util.spec_from_file_location("sim_card", Path(ROOTS[0], "sim_card.py"))
        assert spec is not None and spec.loader is not None
        sys.modules["sim_card"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sim_card"])
    return sys.modules["sim_card"]


@contextlib.contextmanager
def host_card(**facts: Any) -> Iterator[Any]:
    """Give this process a simulated device for a while."""
    before, devices.cards.card = devices.cards.card, sim_card().SimCard(**facts)
    try:
        yield devices.cards.card
    finally:
        devices.cards.card.shut()
        devices.cards.card = before


@contextlib.contextmanager
def device_worker(policy: int = 1, card: dict[str, Any] | None = None, **more: Any) -> Iterator[Started]:
    """Start a worker that has a simulated device."""
    with joined(import_roots=ROOTS, **more) as worker:
        worker.session.devices.policy = policy
        worker.call("sim_card:install", kwargs=card or {})
        yield worker


def ramp(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32).to(dtype)
