"""A device that is simulated: its memory lies in segments that other processes can open, its streams run late.

Tensors on it are torch tensors whose device is ``cuda:N`` and whose operations run on the host's processor, over memory
of the device. What is freed is overwritten, so that whoever looks at it too late sees that. A copy out of another
process's memory is made late, as on a device, and an event is a byte that both processes see.
"""

import contextlib
import ctypes
import mmap
import os
import struct
import sys
import time
import weakref

import torch
from torch.utils import _pytree

torch.set_num_threads(1)
UUIDS = ("SIM-0", "SIM-1")
FACTS = {"torch": "simulated", "allocator": "native"}
SEGMENT = 64 << 20
POISON = 0xDD
_HANDLE = struct.Struct("<QQQ40x")


class Sim(torch.Tensor):
    """A tensor on the simulated device; ``raw`` is the same memory as the host's processor sees it."""

    @staticmethod
    def __new__(cls, raw, index, foreign=False):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), dtype=raw.dtype, device=f"cuda:{index}", requires_grad=False)
        tensor.raw, tensor.foreign = raw, foreign
        return tensor

    def __repr__(self):
        return f"Sim({self.raw}, device={self.device})"

    def __getitem__(self, key):
        return Sim(self.raw[key], self.device.index, self.foreign)

    def __setitem__(self, key, value):
        current().flush()
        self.raw[key] = value

    def contiguous(self):
        return self if self.is_contiguous() else torch.ops.aten.clone.default(self, memory_format=torch.contiguous_format)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return current().run(func, args, kwargs or {})


Sim.__module__, Sim.__qualname__, Sim.__name__ = "torch", "Tensor", "Tensor"


class _Segment:
    def __init__(self, index, size):
        self.index, self.size, self.top = index, size, 0
        self.fd = os.memfd_create("sim_card")
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        self.base = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.memory))
        self.close = weakref.finalize(self, os.close, self.fd)


class _Event:
    def __init__(self):
        self.fd = os.memfd_create("sim_event")
        os.ftruncate(self.fd, 2)
        self.memory = mmap.mmap(self.fd, 2)   # [is over, somebody waits]
        weakref.finalize(self, os.close, self.fd)

    def over(self):
        self.memory[0] = 1


class SimCard:
    kind = "cuda"

    def __init__(self, uuids=UUIDS, facts=None, fault="", segment=SEGMENT):
        self._uuids, self._facts, self.fault = list(uuids), dict(facts or FACTS), fault
        self._segment_size = segment
        self._segments, self._free = [], {}
        self._regions = {}
        self._late, self._held, self._events = [], None, weakref.WeakSet()
        self.used = [0] * len(uuids)
        self.exports = self.waits = self.finished = 0
        self.faults = []

    # ---- memory

    def _allocate(self, index, size):
        rounded = -(-max(size, 1) // 512) * 512
        free = self._free.get((index, rounded))
        segment, start = free.pop() if free else self._carve(index, rounded)
        self.used[index] += rounded
        owner = (ctypes.c_ubyte * size).from_buffer(segment.memory, start) if size else None
        if owner is not None:
            weakref.finalize(owner, self._freed, segment, start, rounded).atexit = False
        return owner

    def _carve(self, index, size):
        for segment in self._segments:
            if segment.index == index and segment.top + size <= segment.size:
                break
        else:
            segment = _Segment(index, max(self._segment_size, size))
            self._segments.append(segment)
        start, segment.top = segment.top, segment.top + size
        return segment, start

    def _freed(self, segment, start, size):
        segment.memory[start:start + size] = bytes([POISON]) * size
        self.used[segment.index] -= size
        self._free.setdefault((segment.index, size), []).append((segment, start))

    def _new(self, like, index):
        extent = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True)) if like.numel() else 0
        size = extent * like.element_size()
        if not size:
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        return torch.frombuffer(self._allocate(index, size), dtype=torch.uint8).view(like.dtype).as_strided(like.shape, like.stride())

    def shut(self):
        """Give up the descriptors; what is looked at stays."""
        for segment in self._segments:
            segment.close()

    # ---- work

    def flush(self):
        late, self._late = self._late, []
        for copy in late:
            copy()

    def hold(self):
        """Let what `later` asks for wait until `go`."""
        self._held = []

    def later(self, work):
        self._held.append(work)

    def go(self):
        held, self._held = self._held, None
        for work in held:
            work()

    def go_when_waited_for(self, seconds=20):
        """Do what is held as soon as another process waits for an event behind it."""
        deadline = time.monotonic() + seconds
        while not any(event.memory[1] for event in list(self._events)) and time.monotonic() < deadline:
            time.sleep(0.0005)
        self.go()

    def run(self, func, args, kwargs):
        if self.fault == "fails" and func is torch.ops.aten._to_copy.default:
            raise RuntimeError("the simulated device fails")
        device = kwargs.pop("device", None)
        sims = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if type(leaf) is Sim]
        index = sims[0].device.index
        if len({sim.device.index for sim in sims}) > 1:
            raise RuntimeError("expected all tensors to be on the same device")
        if func is torch.ops.aten.clone.default and sims[0].foreign:
            return self._copied_late(sims[0].raw, index)
        if not func.is_view:
            self.flush()
        plain_args, plain_kwargs = _pytree.tree_map_only(Sim, lambda sim: sim.raw, (args, kwargs))
        out = func(*plain_args, **plain_kwargs)
        if device is not None and torch.device(device).type == "cpu":
            return out
        foreign = any(sim.foreign for sim in sims)
        return _pytree.tree_map_only(torch.Tensor, lambda raw: self._wrapped(raw, sims, index, foreign), out)

    def _copied_late(self, raw, index):
        copy = self._new(raw, index)
        self._late.append(lambda: copy.copy_(raw))
        return Sim(copy, index)

    def _wrapped(self, raw, sims, index, foreign):
        for sim in sims:
            if sim.raw is raw:
                return sim
        if any(sim.raw.untyped_storage().data_ptr() == raw.untyped_storage().data_ptr() for sim in sims):
            return Sim(raw, index, foreign)
        return Sim(self._new(raw, index).copy_(raw), index)

    # ---- what the transport asks for

    def uuids(self):
        return self._uuids

    def facts(self):
        return self._facts

    def address(self, tensor):
        return tensor.raw.data_ptr()

    def export(self, tensor):
        self.exports += 1
        where = tensor.raw.data_ptr()
        segment = next((one for one in self._segments if one.base <= where < one.base + one.size), None)
        if segment is None or self.fault == "no handles":
            raise _faults().CannotShare("the simulated device has no handle for this memory")
        event = _Event()
        if self._held is None:
            event.over()
        else:
            self._events.add(event)
            self._held.append(event.over)
        return _devices().Export(_handle(segment.fd), where - segment.base, _handle(event.fd), event)

    def open(self, index, handle):
        if self.fault == "does not open":
            raise _faults().CannotShare("the simulated device does not open it")
        if self.fault == "zeros":
            memory = mmap.mmap(-1, SEGMENT)
        else:
            with _opened(handle) as fd:
                memory = mmap.mmap(fd, os.fstat(fd).st_size)
        region = _devices().Region(ctypes.addressof(ctypes.c_ubyte.from_buffer(memory)), len(memory))
        self._regions[region.base] = [memory, 0]
        return region

    def close(self, index, region):
        memory, live = self._regions.pop(region.base)
        if live:
            self.faults.append("memory was closed while somebody looked at it")

    def opened(self):
        return len(self._regions)

    def wait(self, index, ready):
        self.waits += 1
        with _opened(ready) as fd:
            event = mmap.mmap(fd, 2)
        event[1] = 1
        deadline = time.monotonic() + 30
        while not event[0]:
            if time.monotonic() > deadline:
                raise RuntimeError("the simulated device waited too long for an event")
            time.sleep(0.0005)

    def view(self, index, region, offset, size, keep):
        entry = self._regions[region.base]
        entry[1] += 1
        owner = (ctypes.c_ubyte * size).from_buffer(entry[0], offset)
        owner.keep = keep
        weakref.finalize(owner, self._unseen, entry).atexit = False
        return Sim(torch.frombuffer(owner, dtype=torch.uint8), index, foreign=True)

    @staticmethod
    def _unseen(entry):
        entry[1] -= 1

    def finish(self, index, everything=False):
        self.finished += 1
        self.flush()

    def place(self, tensor, index):
        return Sim(self._new(tensor, index).copy_(tensor), index)


def _handle(fd):
    return _HANDLE.pack(os.getpid(), fd, os.fstat(fd).st_ino)


@contextlib.contextmanager
def _opened(handle):
    pid, fd, inode = _HANDLE.unpack(handle)
    try:
        found = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _faults().CannotShare(f"the simulated device knows no such handle: {error.strerror}") from error
    try:
        if os.fstat(found).st_ino != inode:
            raise _faults().CannotShare("the simulated device's handle means something else by now")
        yield found
    finally:
        os.close(found)


def _devices():
    return sys.modules["comfy_env.worker.wire.devices"]


def _faults():
    return sys.modules["comfy_env.worker.wire.faults"]


def _cards():
    """Where this process keeps its device: a host's place comes first, since its in-process workers load a worker's modules too."""
    host = sys.modules.get("comfy_env.transport.devices")
    return (host or sys.modules["comfy_env.worker.devices"]).cards


def current():
    return _cards().card


def install(**facts):
    """Give this worker a simulated device."""
    _cards().card = SimCard(**facts)


def figures():
    card = current()
    return {"used": list(card.used), "opened": card.opened(), "exports": card.exports, "waits": card.waits, "faults": list(card.faults)}


def faulty(fault):
    current().fault = fault


def _end():
    return sys.modules["comfy_env.worker.callback"].workers.find().loop._tools.devices


def verdicts():
    return dict(_end().verdicts)


def hindered(why):
    _end().verdicts["SIM-0"] = why


def forget_verdicts():
    _end().verdicts.clear()
    _end().hops = 0
    _end().trim()


def look_away():
    _end().trim()


def hops():
    return _end().hops


def make(count, index=0):
    return current().place(torch.arange(count, dtype=torch.float32), index)


def slow_plus_one(value, seconds):
    time.sleep(seconds)
    return value + 1


def dies_when_asked():
    SimCard.facts = lambda card: os._exit(7)
