"""What must hold of tensors on a device between processes, written once: for a real device and for a simulated one.

Each check takes a `Bench` and returns a line of figures; an AssertionError says what does not hold, `Skipped` that this
machine cannot show it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from comfy_env.errors import ComfyEnvError, LaneLost
from comfy_env.transport.commands import release
from comfy_env.values import Want

LARGE = 512 * 1024   # float32: 2 MiB, more than what travels as bytes


class Skipped(Exception):
    """This machine cannot show it."""


class Bench(Protocol):
    """A device and workers that see it."""

    card: Any

    def worker(self, policy: int = 1, **more: Any) -> AbstractContextManager[Any]:
        """Start a worker; entered, it is one of `tests.transport.workers.Started`."""

    def used(self) -> int:
        """Return the bytes of the first device that tensors of this process take."""

    def used_in(self, worker: Any) -> int:
        """Return the same of a worker."""

    def busy(self, tensor: Any, number: float) -> None:
        """Have the tensor filled with a number, after work that takes a while; returns before it is."""


def place(bench: Bench, tensor: torch.Tensor, index: int = 0) -> Any:
    return bench.card.place(tensor, index)


def ramp(count: int = LARGE) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32)


def shared(worker: Any) -> bool:
    """Tell whether at least one device was proved and none refused."""
    verdicts = worker.session.devices.verdicts
    return bool(verdicts) and not any(verdicts.values())


# ---------------------------------------------------------------- the checks

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda t: t,
    "view with an offset": lambda t: t.narrow(0, 5, t.shape[0] - 7),
    "every second row": lambda t: t.as_strided((t.shape[0] // 2, t.shape[1]), (2 * t.stride(0), 1)),
    "transposed": lambda t: t.t(),
    "expanded": lambda t: t.unsqueeze(0).expand(3, *t.shape),
    "small": lambda t: t.narrow(0, 0, 1),
}
DTYPES = ("float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64", "float8_e4m3fn")


def exact(bench: Bench) -> str:
    """Every type and layout arrives on the same device, bit by bit, with its strides where they are dense."""
    count = 0
    with bench.worker() as worker:
        for name in filter(lambda name: hasattr(torch, name), DTYPES):
            plain = (torch.arange(256 * 512) % 2).to(torch.uint8) if name == "bool" else torch.arange(256 * 512).to(torch.uint8)
            dtype = getattr(torch, name)
            whole = plain.repeat(dtype.itemsize).view(dtype).reshape(256, 512)
            for layout, view in LAYOUTS.items():
                _same(worker, place(bench, whole), view, f"{name}, {layout}")
                count += 1
        assert shared(worker), worker.session.devices.verdicts
        return f"{count} of types and layouts"


def _same(worker: Any, whole: Any, view: Callable[[Any], Any], what: str) -> None:
    sent = view(whole)
    back = worker.value("gpu_guest:echo", sent)
    there = worker.value("gpu_guest:facts", sent)
    assert (str(back.device), back.dtype, back.shape) == (str(sent.device), sent.dtype, sent.shape), what
    assert there[:3] == (str(sent.device), str(sent.dtype), tuple(sent.shape)), what
    if what.rpartition(", ")[2] in ("whole", "transposed", "expanded"):
        assert back.stride() == sent.stride() and there[3] == tuple(sent.stride()), what
    assert _bits(back) == _bits(sent), f"{what}: the bits differ"


def _bits(tensor: Any) -> bytes:
    return bytes(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())


def no_host_memory(bench: Bench) -> str:
    """A large tensor goes and comes without a byte of it in the host's memory."""
    with bench.worker() as worker:
        value = place(bench, ramp())
        worker.value("gpu_guest:plus_one", value)
        before, hops = worker.session.traffic, worker.session.devices.hops
        for _ in range(20):
            back = worker.value("gpu_guest:plus_one", value)
        after = worker.session.traffic
        assert (after["copied"], after["spilled"]) == (before["copied"], before["spilled"])
        assert torch.equal(back.cpu(), ramp() + 1) and shared(worker)
        assert worker.session.devices.hops == hops
        return f"0 bytes in 20 calls with {4 * LARGE} each way"


def opened_once(bench: Bench) -> str:
    """An allocation's handle is opened once, however many tensors of it come."""
    with bench.worker() as worker:
        value = place(bench, ramp())
        worker.value("gpu_guest:plus_one", value)
        worker.value("gpu_guest:plus_one", value)
        before = worker.session.devices.opened
        for _ in range(50):
            worker.value("gpu_guest:plus_one", value)
        assert worker.session.devices.opened == before, worker.session.devices.opened
        return "0 more opened in 50 calls"


def ordered(bench: Bench) -> str:
    """What was asked of the device before a tensor was sent is seen by the worker, though it is not done yet."""
    with bench.worker() as worker:
        value = place(bench, torch.zeros(LARGE))
        for number in range(1, 21):
            bench.busy(value, float(number))
            assert worker.value("gpu_guest:total", value.narrow(0, 0, 8192)) == 8192.0 * number, number
        return "20 of 20 right"


def inputs_are_the_hosts(bench: Bench) -> str:
    """A worker that writes into its input, or keeps it, changes nothing of the host's, and the next call reads what is there."""
    with bench.worker() as worker:
        value = place(bench, torch.ones(LARGE))
        assert float(worker.value("gpu_guest:fill", value, 7).cpu().sum()) == 7.0 * LARGE
        worker.value("gpu_guest:keep_filled", value, 9)
        assert float(value.cpu().sum()) == LARGE
        assert worker.value("gpu_guest:total", value) == LARGE
        value.fill_(2)
        assert worker.value("gpu_guest:total", value) == 2 * LARGE
        assert worker.value("gpu_guest:kept_totals") == [9.0 * LARGE]
        return "unchanged"


def outlives_its_maker(bench: Bench) -> str:
    """A result is the host's own: its worker may be killed, at once or in the middle of a call, and the device goes on."""
    with bench.worker() as worker:
        made = worker.value("gpu_guest:made", place(bench, ramp()), 3)
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.popen.wait(20)
        worker.session.close()
    for number, one in enumerate(made):
        assert torch.equal(one.cpu(), ramp() + number)
    with bench.worker() as worker:
        value = place(bench, ramp())
        worker.value("gpu_guest:nothing", value)
        try:
            worker.call("gpu_guest:die", value)
        except ComfyEnvError as error:
            assert isinstance(error, LaneLost), error
        else:
            raise AssertionError("a worker's death in a call went unnoticed")
        worker.session.close()
        assert torch.equal((value + 1).cpu(), ramp() + 1)
    return "3 results read after the kill, the death told by name"


def dies_around_its_answer(bench: Bench) -> str:
    """A worker that ends while its result is on the way: the right result or an error by name, and the device goes on."""
    told = []
    for _ in range(2):
        with bench.worker(env="dying") as worker:
            value = place(bench, ramp())
            worker.value("gpu_guest:plus_one", value)
            try:
                back = worker.value("gpu_guest:return_and_die", value)
                assert torch.equal(back.cpu(), ramp() + 1)
                told.append("a result")
            except ComfyEnvError as error:
                told.append(type(error).__name__)
            worker.session.close()
            assert torch.equal((value + 1).cpu(), ramp() + 1)
    return ", ".join(told)


def memory_comes_back(bench: Bench) -> str:
    """After drops both ends use what they used before, also after many calls, and after a worker that kept much died."""
    base = bench.used()
    with bench.worker() as worker:
        value = place(bench, ramp())
        worker.value("gpu_guest:plus_one", value)
        here, there = bench.used(), bench.used_in(worker)
        for _ in range(200):
            worker.value("gpu_guest:plus_one", value)
        assert (bench.used(), bench.used_in(worker)) == (here, there)
        for _ in range(5):
            worker.value("gpu_guest:keep", value)
        assert bench.used_in(worker) >= there + 5 * 4 * LARGE
        worker.value("gpu_guest:let_go")
        assert bench.used_in(worker) == there
        assert worker.lanes is not None
        release(worker.process, worker.lanes, Want(None, "idle"))
        assert torch.equal(worker.value("gpu_guest:plus_one", value).cpu(), ramp() + 1)
        worker.value("gpu_guest:keep", value)
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.popen.wait(20)
        worker.session.close()
    del value
    assert bench.used() == base, (bench.used(), base)
    return "flat over 200 calls, back at the start after the kill"


def in_place(bench: Bench) -> str:
    """With COMFY_ENV_GPU=2 a worker's input is the host's own memory, which is kept until the worker lets go of it."""
    with bench.worker(policy=2) as worker:
        value = place(bench, torch.ones(LARGE))
        worker.value("gpu_guest:nothing", value)
        there = bench.used_in(worker)
        worker.value("gpu_guest:keep", value)
        assert bench.used_in(worker) == there
        base = bench.used()
        del value
        assert bench.used() == base, "the host's memory went while the worker looked at it"
        assert worker.value("gpu_guest:kept_totals") == [float(LARGE)]
        worker.value("gpu_guest:let_go")
        worker.value("gpu_guest:nothing")
        assert bench.used() == base - 4 * LARGE, (bench.used(), base)
        value = place(bench, torch.ones(LARGE))
        back = worker.value("gpu_guest:echo", value)
        back.fill_(3)
        assert float(value.cpu().sum()) == LARGE and worker.value("gpu_guest:hops") == 0
        return "no copy in the worker, kept and freed with it, a returned input is a copy"


def several_devices(bench: Bench) -> str:
    """Each device is proved by itself, and a tensor stays on its own."""
    count = len(bench.card.uuids())
    if count < 2:
        raise Skipped("this machine has one device")
    with bench.worker() as worker:
        values = [place(bench, ramp() + index, index) for index in range(count)]
        back = worker.value("gpu_guest:echo", values)
        assert [str(one.device) for one in back] == [str(one.device) for one in values]
        assert all(torch.equal(one.cpu(), ramp() + index) for index, one in enumerate(back))
        assert sorted(worker.session.devices.verdicts) == sorted(bench.card.uuids()) and shared(worker)
        return f"{count} devices"


def between_two_workers(bench: Bench) -> str:
    """What one worker made goes on to another, and stays when the first is killed."""
    with bench.worker(env="b") as b:
        with bench.worker(env="a") as a:
            made = a.value("gpu_guest:plus_one", place(bench, ramp()))
            b.value("gpu_guest:keep", made)
            a.process.popen.kill()
            a.session.close()
        assert b.value("gpu_guest:total", made) == b.value("gpu_guest:kept_totals")[0]
        assert torch.equal(made.cpu(), ramp() + 1)
    return "right after the maker was killed"


def callbacks(bench: Bench) -> str:
    """Tensors on a device go the same way in a callback, in both directions."""
    with bench.worker() as worker:
        value = place(bench, ramp())
        back = worker.value("gpu_guest:ask_host", value, callbacks={"double": lambda given: given * 2})
        assert torch.equal(back.cpu(), ramp() * 2) and shared(worker)
    return "right"


def figures(bench: Bench) -> str:
    """3 MiB to a worker and one more than it back: shared, and through the host's memory."""
    told = []
    for name, policy in (("shared", 1), ("in place", 2), ("through the host", 0)):
        with bench.worker(policy=policy) as worker:
            value = place(bench, torch.rand(3 * 2**18))
            times = []
            for _ in range(30):
                begun = time.perf_counter()
                worker.value("gpu_guest:plus_one", value).narrow(0, 0, 1).cpu()
                times.append(time.perf_counter() - begun)
            told.append(f"{name} {sorted(times[5:])[12] * 1e3:.2f} ms")
    return ", ".join(told)


CHECKS: tuple[Callable[[Bench], str], ...] = (
    exact, no_host_memory, opened_once, ordered, inputs_are_the_hosts, outlives_its_maker, dies_around_its_answer, memory_comes_back,
    in_place, several_devices, between_two_workers, callbacks, figures,
)
