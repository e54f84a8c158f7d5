"""The host's end of the codec: callables by value, references to objects that stayed in a worker, closed to everything else."""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfy_env.errors import DecodeRefused, EncodeRefused, NodeRaised, ReferenceLost
from comfy_env.transport import arrays, closures, tensors
from comfy_env.transport.coded import SealedValue
from comfy_env.transport.relays import relays
from comfy_env.values import RemoteRef
from comfy_env.worker.wire import named, sealed
from comfy_env.worker.wire.decoder import Fresh
from comfy_env.worker.wire.devices import Devices
from comfy_env.worker.wire.faults import CannotShare, DecodeFault, DeviceGone, EncodeFault, ReferenceGone, Unproved
from comfy_env.worker.wire.payload import Codec, Side, type_name

_LOADERS: dict[str, Callable[[], Any]] = {
    "numpy": arrays.load_numpy, "torch": tensors.load_torch, "PIL.Image": arrays.load_pictures,
}


Prove = Callable[[str], None]


class _Lost(Exception):
    """A reference among the values to send leads to a worker that is gone."""


class HeldRef(RemoteRef):
    """A reference that came from a worker. It cannot be rewritten, so that what is counted is what is named."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a reference cannot be changed")

    def __setstate__(self, state: Any) -> None:
        raise AttributeError("a reference cannot be changed")

    @classmethod
    def make(cls, env: str, generation: int, id: int, type_name: str) -> HeldRef:
        ref = cls.__new__(cls)
        for name, value in (("env", env), ("generation", generation), ("id", id), ("type_name", type_name)):
            object.__setattr__(ref, name, value)
        return ref


class HostSide(Side):
    """Decides about values in the host, for one worker."""

    wary = True

    def __init__(self, env: str, generation: int, hello: Mapping[str, Any]) -> None:
        self.env = env
        self.generation = generation
        self._hello = hello
        self.drops: deque[int] = deque()   # references that were let go; finalizers only append
        self.taken = 0

    # ---- sending

    def write_other(self, obj: Any) -> Any:
        if isinstance(obj, RemoteRef):
            return self._reduced(obj)
        if callable(obj):
            return sealed.VALUE, (self.closure(obj),)
        raise EncodeFault(obj, f"is of type {type_name(type(obj))}, which cannot cross to a worker",
                          "pass plain values, arrays, dataclasses of a module, or what a worker returned")

    def _reduced(self, ref: RemoteRef) -> Any:
        if ref.env != self.env:
            return sealed.RELAYED, (ref.type_name, ref.env, relays.fetch(ref, self.env))
        if ref.generation != self.generation:
            raise _Lost(f"a {ref.type_name} was lost: it lived in generation {ref.generation} of env {ref.env}, which is gone")
        return sealed.REF, (ref.id,)

    def closure(self, function: Any) -> bytes:
        """Return a callable by value; refused unless both ends run the same bytecode."""
        here, there = sys.implementation.cache_tag, self._hello.get("cache_tag")
        if here != there:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            mine, other = f"Python {sys.version.split()[0]} ({here})", f"Python {self._hello.get('python', '?')} ({there})"
            why = f"is the callable {name}, which travels by value only between equal Pythons: this is {mine}, the worker is {other}"
            raise EncodeFault(function, why, _by_name(function))
        try:
            return closures.dumps(function)
        except Exception as error:  # pickling by value runs the reductions of whatever the callable closes over
            raise EncodeFault(function, f"is a callable that cannot be sent by value ({type(error).__name__}: {error})",
                              _by_name(function)) from error

    # ---- receiving

    def find(self, module: str, qualname: str) -> Any:
        loaded = sys.modules.get(module)
        return None if loaded is None else named.walk(loaded, qualname)

    def absent(self, fresh: Fresh, kind: str, module: str, qualname: str, reference: int, content: Any) -> Any:
        name = f"{module}.{qualname}"
        if kind == "raised":
            fresh.spared.append(reference)
            error = NodeRaised(f"{name}{content!r}" if type(content) is tuple else name, env=self.env, generation=self.generation)
            error.remote_type = name
            return fresh.add(error, _leave)
        return fresh.add(self._reference(fresh, reference, name), _leave)

    def unread(self, name: str, tag: str, content: Any, why: str) -> Any:
        return SealedValue(name, tag, content)

    def references(self) -> Mapping[str, Callable[..., Any]]:
        return {"REF": self._reference}

    def _reference(self, fresh: Fresh, number: Any, name: Any) -> HeldRef:
        if type(number) is not int or type(name) is not str:
            raise DecodeFault("a reference is not a number with a name")
        ref = HeldRef.make(self.env, self.generation, number, name)
        fresh.adopted.append(ref)
        return ref

    def adopt(self, fresh: Fresh) -> None:
        self.drops.extend(fresh.spared)
        self.taken += len(fresh.spared) + len(fresh.adopted)
        for ref in fresh.adopted:
            weakref.finalize(ref, self.drops.append, ref.id).atexit = False

    def load(self, module: str) -> Any:
        return _LOADERS[module]()


def _leave(obj: Any, state: Any) -> None:
    """What stands for an object of an unknown class takes no content."""


def _by_name(function: Any) -> str:
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(function, (types.FunctionType, type)) and "<" not in f"{module}{qualname}" and module != "__main__":
        return f'pass it by name: "{module}:{qualname}"'
    return 'pass it by name: put it into a module of the environment and give "module:function"'


class HostCodec:
    """The codec of one worker: encodes for it, decodes what it sent; any thread may use it."""

    def __init__(self, env: str, generation: int, hello: Mapping[str, Any]) -> None:
        self.env = env
        self.generation = generation
        self._side = HostSide(env, generation, hello)
        self._codec = Codec(self._side, lends=True)
        self._dropped = 0

    def encode(self, value: Any, message: bool = False, prove: Prove | None = None) -> tuple[bytes, list[memoryview]]:
        """Return payload and buffers; raises EncodeRefused with the path of what cannot cross, ReferenceLost.

        ``prove`` tries a device from which a tensor is sent for the first time; without it such a tensor travels as bytes.
        """
        while prove is not None:
            try:
                return self._encoded(self._codec, value, message)
            except Unproved as unproved:
                prove(unproved.uuid)
        return self._encoded(self._codec.plain, value, message)

    def _encoded(self, codec: Codec, value: Any, message: bool) -> tuple[bytes, list[memoryview]]:
        try:
            return codec.encode(value, message)
        except (Unproved, CannotShare):
            raise   # before the last of these: it is about a device, not about the value
        except EncodeFault as fault:
            raise EncodeRefused(fault.why, env=self.env, generation=self.generation, hint=fault.hint) from fault
        except RecursionError as error:
            raise EncodeRefused("a value is nested too deep to cross", env=self.env, generation=self.generation) from error
        except _Lost as lost:
            hint = "run again what made it: objects that stay in a worker end with it"
            raise ReferenceLost(str(lost), env=self.env, generation=self.generation, hint=hint) from lost
        except Exception as error:  # a caller's object may raise whatever it likes when it is looked at
            why = f"a value cannot be looked at: it raised {type(error).__name__}: {error}"
            raise EncodeRefused(why, env=self.env, generation=self.generation) from error

    def decode(self, payload: Any, buffers: Sequence[memoryview] = ()) -> Any:
        """Return the value; raises DecodeRefused for everything that a sound worker does not send."""
        try:
            return self._codec.decode(payload, buffers)
        except DeviceGone as gone:
            why = f"a tensor on a device was lost: the worker's memory cannot be looked at ({gone})"
            raise ReferenceLost(why, env=self.env, generation=self.generation, hint="run again what made it") from gone
        except (DecodeFault, ReferenceGone) as fault:
            raise DecodeRefused(str(fault), env=self.env, generation=self.generation) from fault

    def share(self, devices: Devices) -> None:
        """Deal with device memory from now on."""
        self._side.devices = devices

    def take_drops(self) -> list[int]:
        """Return the numbers of references that were let go since the last time."""
        drops = self._side.drops
        if not drops:
            return []
        taken = [drops.popleft() for _ in range(len(drops))]
        self._dropped += len(taken)
        return taken

    @property
    def references(self) -> int:
        """How many references to objects of this worker are alive in the host."""
        return self._side.taken - self._dropped - len(self._side.drops)
