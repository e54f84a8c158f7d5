"""A real device, and what is checked of it besides what a simulated one can show as well."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_checks
from benchmarks.gpu_checks import Bench, Skipped
from comfy_env.transport.devices import cards
from tests.transport.workers import joined

GUEST = Path(__file__).with_name("gpu_guest")
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class CudaBench:
    """The device of this machine; CannotShare where there is none."""

    def __init__(self) -> None:
        self.card = cards.find()

    @contextlib.contextmanager
    def worker(self, policy: int = 1, **more: Any) -> Iterator[Any]:
        with joined(import_roots=(str(GUEST),), **more) as worker:
            worker.session.devices.policy = policy
            yield worker

    def __str__(self) -> str:
        return f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}, {len(self.card.uuids())} device(s)"

    def used(self) -> int:
        return torch.cuda.memory_allocated(0)

    def used_in(self, worker: Any) -> int:
        return worker.value("gpu_guest:allocated")

    def busy(self, tensor: Any, number: float) -> None:
        """Fill the tensor behind some tens of milliseconds of work."""
        large = torch.rand(4096, 4096, device=tensor.device)
        for _ in range(20):
            large = (large @ large).clamp(0, 1)
        tensor.fill_(number)


@contextlib.contextmanager
def variables(**given: str) -> Iterator[None]:
    """Start workers with these variables for a while."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def another_allocator(bench: Bench) -> str:
    """A worker whose allocator gives no handles is found out; its tensors arrive all the same, and why is told."""
    with variables(**dict.fromkeys(ALLOCATOR, "expandable_segments:True")), bench.worker() as worker:
        value = gpu_checks.place(bench, gpu_checks.ramp())
        back = worker.value("gpu_guest:plus_one", value)
        assert torch.equal(back.cpu(), gpu_checks.ramp() + 1) and back.device == value.device
        whys = list(worker.session.devices.demotions)
        assert len(whys) == 1, whys
        return whys[0]


def no_device_there(bench: Bench) -> str:
    """A worker that sees no device refuses a tensor on one by name."""
    with variables(CUDA_VISIBLE_DEVICES=""), bench.worker() as worker:
        answer = worker.call("gpu_guest:nothing", gpu_checks.place(bench, gpu_checks.ramp()))
        assert answer.kind.name == "REFUSED" and "came to a process without it" in answer.text, answer
        return "refused"


CHECKS = (*gpu_checks.CHECKS, another_allocator, no_device_there)


def judge(check: Callable[[Bench], str], bench: Bench) -> tuple[str, str]:
    """Return a check's verdict and what it tells."""
    try:
        return "holds", check(bench)
    except Skipped as why:
        return "not shown", str(why)
    except Exception as error:  # whatever it is, the next check is still worth its run
        sys.stderr.write(traceback.format_exc())
        return "BROKEN", f"{type(error).__name__}: {error}"
