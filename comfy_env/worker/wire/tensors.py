"""Rows and reconstructors of torch tensors, dtypes, devices, sizes and generators.

Sending needs only what the tensor offers; receiving asks `load` for the torch module. An end without torch gets a numpy
array over the same bytes where numpy has the type, and a refusal by name where it has not.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from typing import Any, Optional

from . import blocks, sealed, windows
from .devices import Devices
from .faults import CannotShare, DecodeFault, EncodeFault
from .headroom import copied

Load = Callable[[], Any]
"""Returns a module, None where it cannot be imported."""

NUMPY_NAMES = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "complex64": "<c8", "complex128": "<c16", "bool": "|b1",
    "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}
"""torch dtypes that numpy has too."""


def _axes(one: Any, other: Any) -> list[tuple[Any, Any]]:
    return list(zip(one, other))  # noqa: B905 - not in Python 3.9


# ---------------------------------------------------------------- sending

def write_tensor(tensor: Any, devices: Optional[Devices] = None, lends: bool = False) -> Any:
    """Write a tensor's bytes, or where they lie if it is on a device whose memory is lent."""
    device = str(tensor.device)
    _refuse_odd(tensor, device)
    parameter = type(tensor).__name__ == "Parameter" or bool(getattr(tensor, "_is_param", False))
    grad = bool(tensor.requires_grad)
    shape = tuple(tensor.shape)
    plain, stride = _dense(tensor)
    if device != "cpu":
        try:
            lent = devices.lend(plain) if devices is not None and lends and devices.lends(plain) else None
            plain = plain.cpu() if lent is None else plain
        except RuntimeError as error:   # what torch says of a device that fails
            raise EncodeFault(tensor, f"cannot be read from its device {device} ({error})") from error
        if lent is not None:
            return sealed.LENT, (str(tensor.dtype)[6:], shape, stride, grad, parameter, lent)
        device = device if devices is None else devices.name(tensor.device)
    return sealed.TENSOR, (str(tensor.dtype)[6:], shape, stride, device, grad, parameter, _bytes_of(plain))


def _dense(tensor: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a tensor whose elements fill one piece of memory and are all that this one shows, and the strides that make it equal."""
    shown = tensor.detach()
    grid = None if shown.is_contiguous() else windows.grid_of(tuple(shown.shape), tuple(shown.stride()))
    if grid is not None:
        shown = shown.as_strided(grid.sizes, grid.steps)
    if not shown.is_contiguous() and (grid is not None or not _is_dense(shown)):
        shown = _copied(tensor, shown, shown.contiguous)
    if shown.is_conj() or shown.is_neg():
        shown = _copied(tensor, shown, lambda: shown.resolve_conj().resolve_neg())
    return shown, tuple(shown.stride()) if grid is None else grid.strides


def _copied(tensor: Any, shown: Any, copy: Callable[[], Any]) -> Any:
    return copied(tensor, shown.numel() * shown.element_size(), copy) if str(tensor.device) == "cpu" else copy()


def _refuse_odd(tensor: Any, device: str) -> None:
    if tensor.is_quantized or tensor.is_nested or tensor.is_meta or str(tensor.layout) != "torch.strided":
        why = "quantised" if tensor.is_quantized else "nested" if tensor.is_nested else "meta" if tensor.is_meta else "sparse"
        raise EncodeFault(tensor, f"is a {why} tensor, which cannot cross", "convert it to a dense tensor first")
    if device == "cpu" and not _has_its_memory(tensor):
        why = "is a tensor whose elements lie in no memory of its own (resized away, or made by a transform)"
        raise EncodeFault(tensor, why, "clone it where it still has them")


def _has_its_memory(tensor: Any) -> bool:
    """Tell whether the memory that a tensor's shape and strides span is there: reading what is not would end the process."""
    count = tensor.numel()
    if not count:
        return True
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        reach = count if tensor.is_contiguous() else windows.reach(tensor.shape, tensor.stride())[1] + 1
        spanned = tensor.storage_offset() + reach
        return bool(tensor.data_ptr()) and int(storage.nbytes()) >= spanned * tensor.element_size()
    except (RuntimeError, NotImplementedError):   # torch refuses to name memory where there is none
        return False


def _is_dense(tensor: Any) -> bool:
    """Tell whether the elements fill one piece of memory without gap or overlap, in whatever order of axes."""
    expected = 1
    for step, size in sorted((step, size) for step, size in _axes(tensor.stride(), tensor.shape) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def _bytes_of(tensor: Any) -> Any:
    size = tensor.numel() * tensor.element_size()
    if blocks.rides_in_frame(size):   # nothing that points at it is made, which would cost more than the copy
        return bytearray(ctypes.string_at(tensor.data_ptr(), size)) if size else b""
    memory = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    memory.owner = tensor   # the memory lives as long as whoever looks at it
    return pickle.PickleBuffer(memory)


def write_name(obj: Any) -> Any:
    """Write a torch dtype, layout or memory format by its name."""
    return sealed.TORCH, (type(obj).__name__, str(obj)[6:])


def write_device(device: Any) -> Any:
    return sealed.TORCH, ("device", str(device))


def write_size(size: Any) -> Any:
    return sealed.SIZE, (tuple(size),)


def write_generator(generator: Any) -> Any:
    return sealed.RANDOM, (str(generator.device), generator.get_state())


# ---------------------------------------------------------------- receiving

def readers(load_torch: Load, load_numpy: Load, devices: Callable[[], Optional[Devices]]) -> dict[str, Callable[..., Any]]:
    """Return the reconstructors of tensors and what comes with them."""

    def as_tensor(dtype: Any, shape: Any, stride: Any, device: Any, grad: Any, parameter: Any, data: Any) -> Any:
        torch = load_torch()
        if torch is None:
            return _as_array(load_numpy(), dtype, shape, stride, device, data)
        flat = _flat(torch, _named(torch, dtype, torch.dtype), shape, stride, data)
        if device != "cpu":
            flat = _moved(torch, flat, device, devices())   # before the view is laid over it, which may show it more than once
        return _flagged(torch, flat if stride == (1,) else flat.as_strided(shape, stride), grad, parameter)

    def as_lent(dtype: Any, shape: Any, stride: Any, grad: Any, parameter: Any, lent: Any) -> Any:
        torch, end = _needed(load_torch(), f"a tensor of torch.{dtype} on a device"), devices()
        if end is None or type(lent) is not tuple or len(lent) != 6:
            raise DecodeFault("device memory came where none is lent")
        kind = _named(torch, dtype, torch.dtype)
        _check_fit(dtype, _itemsize(torch, kind), shape, stride, lent[3])
        tensor = end.borrow(*lent).view(kind).as_strided(shape, stride)
        return _flagged(torch, tensor, grad, parameter)

    def as_named(kind: Any, name: Any) -> Any:
        torch = _needed(load_torch(), f"torch.{name}")
        return torch.device(name) if kind == "device" else _named(torch, name, getattr(torch, kind))

    def as_size(sizes: Any) -> Any:
        torch = load_torch()
        return tuple(sizes) if torch is None else torch.Size(sizes)

    def as_generator(device: Any, state: Any) -> Any:
        torch = _needed(load_torch(), "torch.Generator")
        generator = torch.Generator(device)
        generator.set_state(state)
        return generator

    return {"TENSOR": as_tensor, "LENT": as_lent, "TORCH": as_named, "SIZE": as_size, "RANDOM": as_generator}


def _named(torch: Any, name: Any, kind: type) -> Any:
    found = vars(torch).get(name)
    if not isinstance(found, kind):
        raise DecodeFault(f"torch {torch.__version__} here has no {kind.__name__} {name!r}")
    return found


def _needed(torch: Any, what: str) -> Any:
    if torch is None:
        raise DecodeFault(f'{what} came to a Python without torch; give its environment torch (torch = "own")')
    return torch


def _flagged(torch: Any, tensor: Any, grad: Any, parameter: Any) -> Any:
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad=grad)
    return tensor.requires_grad_(True) if grad else tensor


def _itemsize(torch: Any, dtype: Any) -> int:
    return getattr(dtype, "itemsize", 0) or torch.empty((), dtype=dtype).element_size()   # itemsize came with torch 2.1


def _check_fit(dtype: Any, itemsize: int, shape: Any, stride: Any, size: int) -> None:
    extent = windows.reach(shape, stride)[1] + 1 if 0 not in shape else 0
    if min((*shape, *stride), default=0) < 0 or len(shape) != len(stride) or size != extent * itemsize:
        raise DecodeFault(f"a tensor of type {dtype}, shape {shape} and stride {stride} does not fit the bytes that came with it")


def _flat(torch: Any, dtype: Any, shape: Any, stride: Any, data: Any) -> Any:
    """Return all of a tensor's memory, which is known to hold what shape and stride show."""
    memory = memoryview(data)
    _check_fit(dtype, _itemsize(torch, dtype), shape, stride, memory.nbytes)
    if not memory.nbytes:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(memory) if memory.readonly else memory, dtype=dtype)


def _moved(torch: Any, tensor: Any, device: Any, devices: Optional[Devices]) -> Any:
    """Return a tensor on the device that the sender had: known by its UUID where it has told one."""
    name, _, uuid = device.partition(" ")
    try:
        return devices.put(tensor, device) if uuid and devices is not None else tensor.to(torch.device(name))
    except (RuntimeError, AssertionError, CannotShare) as error:
        raise DecodeFault(f"a tensor of device {name} came to a process without it ({error})") from error


def _as_array(numpy: Any, dtype: Any, shape: Any, stride: Any, device: Any, data: Any) -> Any:
    name: Optional[str] = NUMPY_NAMES.get(dtype)
    if numpy is None or name is None or device != "cpu":
        lack = "numpy and torch" if numpy is None else "torch"
        raise DecodeFault(f"a tensor of torch.{dtype} on {device} came to a Python without {lack}; "
                          'give its environment torch (torch = "own")')
    kind = numpy.dtype(name)
    _check_fit(dtype, kind.itemsize, shape, stride, memoryview(data).nbytes)
    if 0 in shape:
        return numpy.empty(shape, kind)
    flat = numpy.frombuffer(data, numpy.uint8).view(kind)
    return numpy.lib.stride_tricks.as_strided(flat, shape, [step * kind.itemsize for step in stride])
