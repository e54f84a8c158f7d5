"""The worker's end of the codec: what cannot cross stays here and travels as a reference."""

from __future__ import annotations

import importlib
import io
import pickle
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Optional

from . import closures, tensors
from .raised import text_of
from .resident import Resident
from .wire import coded, named, sealed
from .wire.decoder import Fresh
from .wire.devices import Devices
from .wire.faults import DecodeFault, EncodeFault
from .wire.payload import Side, type_name

_BOUND_TO_HERE = (
    types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType, types.TracebackType, io.IOBase,
    weakref.ReferenceType, *weakref.ProxyTypes,
)
"""What only means something where it runs: a reference to it would promise too much."""


class _Held(threading.local):
    """What the message that this thread encodes has held so far."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


class GuestSide(Side):
    """Decides about values in a worker."""

    def __init__(self, resident: Resident, cloudpickle_folder: Optional[str], devices: Optional[Devices] = None) -> None:
        self.devices = devices
        self._resident = resident
        self._folder = cloudpickle_folder
        self._held = _Held()

    def hold(self, obj: Any) -> int:
        number = self._resident.hold(obj)
        self._held.numbers.append(number)
        return number

    def settle(self, sent: bool) -> None:
        numbers = self._held.numbers
        if numbers:
            if not sent:
                self._resident.drop(numbers)
            numbers.clear()

    def write_other(self, obj: Any) -> Any:
        if type(obj) is types.FunctionType and obj.__name__ == "<lambda>" or isinstance(obj, _BOUND_TO_HERE):
            raise EncodeFault(obj, f"is of type {type_name(type(obj))}, which only means something in the worker that made it",
                              "return plain values, arrays, or an object of a class")
        return sealed.REF, (self.hold(obj), type_name(type(obj)))

    def find(self, module: str, qualname: str) -> Any:
        try:
            return named.walk(importlib.import_module(module), qualname)
        except ImportError as error:
            raise DecodeFault(f"an argument is of class {module}.{qualname}, which this environment cannot import ({error})") from error

    def absent(self, fresh: Fresh, kind: str, module: str, qualname: str, reference: int, content: Any) -> Any:
        raise DecodeFault(f"an argument is of class {module}.{qualname}, which is not there or another kind of class in this environment")

    def unread(self, name: str, tag: str, content: Any, why: str) -> Any:
        return coded.keep(name, tag, content, why)

    def references(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "REF": lambda fresh, number: self._resident.get(number),
            "VALUE": lambda fresh, data: closures.load(data, self._folder),
            "RELAYED": _relayed,
        }

    def load(self, module: str) -> Any:
        return tensors.load(module)


def _relayed(fresh: Fresh, name: str, env: str, blob: Any) -> Any:
    """Return an object that another worker wrote; raises DecodeFault where this environment has not what it is made of."""
    try:
        return pickle.loads(blob)
    except Exception as error:  # reading an object runs whatever its class does for that
        why = f"{type(error).__name__}: {text_of(error)}"
        raise DecodeFault(f"an argument is a {name} of env {env}, which this environment cannot rebuild ({why})") from error
