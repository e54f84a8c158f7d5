"""Rows and reconstructors of numpy arrays, scalars and dtypes.

Sending needs only what the object itself offers; receiving asks `load` for the numpy module, so that neither end
imports it before an array really arrives. Bytes travel once, from the array's own memory where it is dense in some
order of its axes; a view never costs more bytes than it shows, nor than the memory that it shows.
"""

from __future__ import annotations

import functools
import math
import pickle
import sys
from collections.abc import Callable
from typing import Any, Optional

from . import blocks, sealed, windows
from .decoder import Fresh
from .dtypes import dtype_spec, make_dtype
from .faults import DecodeFault, EncodeFault
from .headroom import copied

Load = Callable[[], Any]
"""Returns numpy, None where it cannot be imported."""


def _needed(load: Load) -> Any:
    numpy = load()
    if numpy is None:
        raise DecodeFault("an array came to a Python without numpy: a result needs numpy in the host's own Python, "
                          "an argument needs it in the environment")
    return numpy


# ---------------------------------------------------------------- sending

def write_array(array: Any) -> Any:
    spec = _spec_of(array)
    window = _window(array)
    if window is not None:
        return window
    fixed = not array.flags.writeable
    if array.dtype.hasobject:
        return sealed.ITEMS, (array.shape, spec, fixed), array.reshape(-1).tolist(), None, None, sealed.FILL
    order = _dense_order(array)
    if order is not None:
        array = array.transpose(order)
        order = None if order == tuple(range(len(order))) else order
    return sealed.ARRAY, (spec, array.shape, order, fixed, _bytes_of(array))


def _spec_of(array: Any) -> Any:
    dtype = array.dtype
    if dtype.hasobject and (dtype.kind != "O" or dtype.names is not None):
        kind = "a structured array that holds Python objects" if dtype.names else f"an array of {type(dtype).__name__}"
        raise EncodeFault(array, f"is {kind}")
    return dtype_spec(dtype, array, objects=dtype.hasobject)


def _window(array: Any) -> Any:
    """Return the reduction of a view that shows memory more than once: what it shows of it, and how. None for any other array."""
    if array.flags.c_contiguous or array.flags.f_contiguous or not array.nbytes:
        return None
    grid = windows.grid_of(array.shape, [abs(step) for step in array.strides])
    if grid is None:
        return None
    signed = zip(array.shape, grid.strides, array.strides)  # noqa: B905 - not in Python 3.9
    strides = tuple((-step if own < 0 else step) if size > 1 else 0 for size, step, own in signed)
    below, _ = windows.reach(array.shape, strides)
    return sealed.WINDOW, (_shown(array, grid), array.shape, strides, -below)


def _shown(array: Any, grid: windows.Grid) -> Any:
    """Return what a view shows of its memory as a dense array, no more writeable than the view."""
    forwards = array[tuple(slice(None, None, -1 if step < 0 else None) for step in array.strides)]
    shown = _strided(sys.modules["numpy"], forwards, grid.sizes, grid.steps)
    if not shown.flags.c_contiguous:
        shown = copied(array, shown.nbytes, functools.partial(shown.copy, "C"))
        shown.flags.writeable = array.flags.writeable
    return shown


def _strided(numpy: Any, array: Any, shape: Any, steps: Any) -> Any:
    """Return another view of an array's memory, from its first element on; of plain bytes meanwhile, since not every type survives it."""
    plain = array if array.dtype.hasobject else array.view(f"V{array.itemsize}")
    view = numpy.lib.stride_tricks.as_strided(plain, shape, steps, writeable=array.flags.writeable)
    return view if array.dtype.hasobject else view.view(array.dtype)


def _dense_order(array: Any) -> Optional[tuple[int, ...]]:
    """Return the order of axes in which the array is contiguous, None if there is none."""
    if array.flags.c_contiguous:
        return tuple(range(array.ndim))
    order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    return order if array.transpose(order).flags.c_contiguous else None


def _bytes_of(array: Any) -> Any:
    if blocks.rides_in_frame(array.nbytes):   # nothing that points at it is made, which would cost more than the copy
        data = array.tobytes()
        return bytearray(data) if data and array.flags.writeable else data
    flat = array if array.flags.c_contiguous else copied(array, array.nbytes, functools.partial(array.copy, "C"))
    return pickle.PickleBuffer(flat.reshape(-1).view("u1"))


def write_scalar(scalar: Any) -> Any:
    if scalar.dtype.kind in "US":
        return sealed.SCALAR, (scalar.dtype.kind, scalar.item())
    return sealed.SCALAR, (dtype_spec(scalar.dtype, scalar), scalar.tobytes())


def write_dtype(dtype: Any) -> Any:
    return sealed.DTYPE, (dtype_spec(dtype, dtype, objects=True),)


# ---------------------------------------------------------------- receiving

def readers(load: Load) -> dict[str, Callable[..., Any]]:
    """Return the reconstructors of arrays and scalars."""

    def as_array(spec: Any, shape: Any, order: Any, fixed: Any, data: Any) -> Any:
        numpy = _needed(load)
        dtype = make_dtype(numpy, spec)
        array = _over(numpy, dtype, shape, data)
        if order is not None:
            array = array.transpose(sorted(range(len(order)), key=order.__getitem__))
        if fixed:
            array.flags.writeable = False
        return array

    def as_window(shown: Any, shape: Any, strides: Any, start: Any) -> Any:
        numpy = _needed(load)
        if type(shown) is not numpy.ndarray or not shown.flags.c_contiguous or len(shape) != len(strides) or min(shape, default=0) < 1:
            raise DecodeFault("a view came with something else than the memory it shows")
        below, above = windows.reach(shape, strides)
        if start + below < 0 or start + above >= shown.size:
            raise DecodeFault(f"a view of shape {shape} and strides {strides} does not fit the memory that came with it")
        return _strided(numpy, shown.reshape(-1)[start:], shape, [step * shown.itemsize for step in strides])

    def as_scalar(spec: Any, data: Any) -> Any:
        numpy = _needed(load)
        if spec in ("U", "S"):
            return (numpy.str_ if spec == "U" else numpy.bytes_)(data)
        return _over(numpy, make_dtype(numpy, spec), (1,), data)[0]

    return {"ARRAY": as_array, "WINDOW": as_window, "SCALAR": as_scalar}


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
    def as_items(fresh: Fresh, shape: Any, spec: Any, fixed: Any) -> Any:
        numpy = _needed(load)
        dtype = make_dtype(numpy, spec)
        if dtype.kind != "O":
            raise DecodeFault(f"an array of objects is said to be one of {dtype}")
        return fresh.add(numpy.empty(shape, dtype), functools.partial(_fill_items, fixed=fixed))

    return as_items


def _fill_items(array: Any, items: Any, fixed: Any) -> None:
    if type(items) is not list or len(items) != array.size:
        raise DecodeFault("an array of objects and its items differ in number")
    flat = array.reshape(-1)
    for i, item in enumerate(items):
        flat[i] = item
    if fixed:
        array.flags.writeable = False
