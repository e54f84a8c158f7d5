"""Rows and reconstructors of numpy arrays, scalars and dtypes.

Sending needs only what the object itself offers; receiving asks `load` for the numpy module, so that neither end
imports it before an array really arrives. Bytes travel once, from the array's own memory where it is dense in some
order of its axes; a view never costs more bytes than it shows.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from typing import Any, Optional

from . import sealed
from .decoder import Fresh
from .faults import DecodeFault, EncodeFault

_SIMPLE = re.compile(r"[<>|=][?biufcSUVmMO]\d*(\[\d*[a-zA-Z]+\])?")

Load = Callable[[], Any]
"""Returns numpy, None where it cannot be imported."""


def _needed(load: Load) -> Any:
    numpy = load()
    if numpy is None:
        raise DecodeFault("an array came to a Python without numpy: a result needs numpy in the host's own Python, "
                          "an argument needs it in the environment")
    return numpy


# ---------------------------------------------------------------- dtypes

def dtype_spec(dtype: Any, owner: Any) -> Any:
    """Return a dtype as plain values: a string, or a tuple for structured and sub-array types."""
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        formats = tuple(dtype_spec(field[0], owner) for field in fields)
        return "struct", dtype.names, formats, tuple(field[1] for field in fields), dtype.itemsize, dtype.isalignedstruct
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return "sub", dtype_spec(base, owner), shape
    if dtype.kind not in "?biufcSUVmMO" or dtype.isbuiltin == 2 or (dtype.kind == "O" and owner is not None):
        raise EncodeFault(owner, f"holds numpy type {dtype}, which has no safe form outside its process")
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        raise EncodeFault(owner, f"holds numpy type {dtype}, whose layout depends on the machine")
    return dtype.str


def make_dtype(numpy: Any, spec: Any) -> Any:
    """Return the dtype of a specification."""
    if type(spec) is str and _SIMPLE.fullmatch(spec):   # numpy itself would parse expressions in it
        return numpy.dtype(spec)
    if type(spec) is not tuple or not spec:
        raise DecodeFault(f"{spec!r:.100} is no numpy type")
    if spec[0] == "sub":
        return numpy.dtype((make_dtype(numpy, spec[1]), spec[2]))
    _, names, formats, offsets, itemsize, aligned = spec
    told = {"names": list(names), "formats": [make_dtype(numpy, f) for f in formats], "offsets": list(offsets), "itemsize": itemsize}
    return numpy.dtype(told, align=aligned)


# ---------------------------------------------------------------- sending

def write_array(array: Any) -> Any:
    if array.dtype.kind == "O" and array.dtype.names is None:
        return sealed.ITEMS, (array.shape,), array.reshape(-1).tolist(), None, None, sealed.FILL
    if array.dtype.hasobject:
        kind = "a structured array that holds Python objects" if array.dtype.names else f"an array of {type(array.dtype).__name__}"
        raise EncodeFault(array, f"is {kind}")
    spec = dtype_spec(array.dtype, array)
    shape = array.shape
    array, spread = _without_spread(array)
    order = _dense_order(array)
    if order is not None:
        array = array.transpose(order)
        order = None if order == tuple(range(len(order))) else order
    return sealed.ARRAY, (spec, array.shape, order, shape if spread else None, _bytes_of(array))


def _without_spread(array: Any) -> tuple[Any, bool]:
    """Return the array with every axis of stride 0 cut to one element."""
    spread = [size > 1 and step == 0 for size, step in zip(array.shape, array.strides)]  # noqa: B905 - not in Python 3.9
    if not array.size or not any(spread):
        return array, False
    return array[tuple(slice(0, 1) if s else slice(None) for s in spread)], True


def _dense_order(array: Any) -> Optional[tuple[int, ...]]:
    """Return the order of axes in which the array is contiguous, None if there is none."""
    if array.flags.c_contiguous:
        return tuple(range(array.ndim))
    order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    return order if array.transpose(order).flags.c_contiguous else None


def _bytes_of(array: Any) -> Any:
    if not array.nbytes:
        return b""
    flat = array if array.flags.c_contiguous else array.copy("C")
    return pickle.PickleBuffer(flat.reshape(-1).view("u1"))


def write_scalar(scalar: Any) -> Any:
    if scalar.dtype.kind in "US":
        return sealed.SCALAR, (scalar.dtype.kind, scalar.item())
    return sealed.SCALAR, (dtype_spec(scalar.dtype, scalar), scalar.tobytes())


def write_dtype(dtype: Any) -> Any:
    return sealed.DTYPE, (dtype_spec(dtype, None),)


# ---------------------------------------------------------------- receiving

def readers(load: Load) -> dict[str, Callable[..., Any]]:
    """Return the reconstructors of arrays and scalars."""

    def as_array(spec: Any, shape: Any, order: Any, spread: Any, data: Any) -> Any:
        numpy = _needed(load)
        dtype = make_dtype(numpy, spec)
        array = _over(numpy, dtype, shape, data)
        if order is not None:
            array = array.transpose(sorted(range(len(order)), key=order.__getitem__))
        return array if spread is None else numpy.broadcast_to(array, spread)

    def as_scalar(spec: Any, data: Any) -> Any:
        numpy = _needed(load)
        if spec in ("U", "S"):
            return (numpy.str_ if spec == "U" else numpy.bytes_)(data)
        return _over(numpy, make_dtype(numpy, spec), (1,), data)[0]

    return {"ARRAY": as_array, "SCALAR": as_scalar}


def dtype_reader(load: Load) -> Callable[..., Any]:
    return lambda spec: make_dtype(_needed(load), spec)


def _over(numpy: Any, dtype: Any, shape: Any, data: Any) -> Any:
    """Return an array over the received bytes; copies only what came inside the payload as immutable bytes."""
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or len(memoryview(data)) != size:
        raise DecodeFault(f"an array of type {dtype} and shape {shape} does not fit the bytes that came with it")
    if not size:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(data, numpy.uint8).view(dtype).reshape(shape)


def items_reader(load: Load) -> Callable[..., Any]:
    def as_items(fresh: Fresh, shape: Any) -> Any:
        return fresh.add(_needed(load).empty(shape, object), _fill_items)

    return as_items


def _fill_items(array: Any, items: Any) -> None:
    if type(items) is not list or len(items) != array.size:
        raise DecodeFault("an array of objects and its items differ in number")
    flat = array.reshape(-1)
    for i, item in enumerate(items):
        flat[i] = item
