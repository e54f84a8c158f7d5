"""The memory of CUDA devices: torch's own, shown to other processes through the driver.

torch's own sharing counts its readers in the sender, which never learns of a reader that was killed, and closes what it
opened with the last view. Here leases are counted by the lane, so only the driver's calls are needed: which allocation a
pointer lies in, its handle, opening and closing one. Events are torch's.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any, Optional

from .devices import Card, Export, Region
from .faults import CannotShare

_DRIVER = "libcuda.so.1"
_LAZY_PEER_ACCESS = 1   # the only flag that opening takes
_pointer = ctypes.c_uint64


class _Handle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_ubyte * 64)]


class _Window:
    """Foreign device memory as torch takes it; lives as long as a tensor over it."""

    def __init__(self, where: int, size: int, keep: Any) -> None:
        self.__cuda_array_interface__ = {"version": 2, "typestr": "|u1", "shape": (size,), "strides": None, "data": (where, False)}
        self.keep = keep


class _Driver:
    """The few calls of the CUDA driver that are needed; each raises CannotShare with the driver's own words."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_DRIVER)
        except OSError as error:
            raise CannotShare(f"the CUDA driver's library cannot be loaded ({error})") from error
        self._library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(_pointer), _Handle, ctypes.c_uint]
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise CannotShare(f"{name} failed: {(text.value or b'error').decode()} ({code})")

    def device(self, index: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        return device

    @contextlib.contextmanager
    def context(self, index: int) -> Iterator[None]:
        """Have calls of this thread mean a device, in the context that torch works in."""
        context = self._contexts.get(index)
        if context is None:   # kept for the life of the process, as torch keeps it
            context = self._contexts[index] = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device(index))
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def allocation(self, where: int) -> Region:
        """Return the allocation that a device address lies in."""
        base, size = _pointer(), ctypes.c_size_t()
        self.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), _pointer(where))
        return Region(base.value, size.value)


class Cards:
    """The device memory of this process, found once. ``card`` is what was found, ``load_torch`` returns None without torch."""

    def __init__(self, load_torch: Callable[[], Any]) -> None:
        self.card: Optional[Card] = None
        self._load_torch = load_torch
        self._why = ""
        self._lock = threading.Lock()

    def find(self) -> Card:
        """Return the device memory that can be shared; raises CannotShare. Imports torch."""
        if self.card is None:
            with self._lock:
                self._look()
        if self.card is None:
            raise CannotShare(self._why)
        return self.card

    def _look(self) -> None:
        if self.card is None and not self._why:
            try:
                self.card = Cuda(self._load_torch())
            except (CannotShare, RuntimeError) as error:   # the latter: what torch says of a driver it cannot work with
                self._why = str(error)


class Cuda:
    """CUDA through torch; raises CannotShare where this process cannot show device memory to another."""

    kind = "cuda"

    def __init__(self, torch: Any) -> None:
        if torch is None:
            raise CannotShare("there is no torch in this process")
        if getattr(torch.version, "hip", None):
            raise CannotShare("torch is built for ROCm, whose memory is not shared by this version")
        if not torch.cuda.is_available():
            raise CannotShare("torch sees no CUDA device in this process")
        torch.cuda.init()
        self._torch = torch
        self._driver = _Driver()
        self._uuids = [self._uuid(index) for index in range(torch.cuda.device_count())]

    def _uuid(self, index: int) -> str:
        found = (ctypes.c_ubyte * 16)()
        self._driver.call("cuDeviceGetUuid_v2", ctypes.byref(found), self._driver.device(index))
        text = bytes(found).hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def uuids(self) -> list[str]:
        return self._uuids

    def facts(self) -> dict[str, str]:
        torch = self._torch
        backend = getattr(torch.cuda, "get_allocator_backend", lambda: "native")()
        return {"torch": f"{torch.__version__} for CUDA {torch.version.cuda}", "allocator": f"{backend}{self._segments()}"}

    def _segments(self) -> str:
        """Tell of expandable segments, which no handle exists for."""
        look = getattr(self._torch.cuda.memory, "_snapshot", None)
        settings = look().get("allocator_settings", {}) if look is not None else {}
        return " with expandable segments" if settings.get("expandable_segments") else ""

    def address(self, tensor: Any) -> int:
        return tensor.data_ptr()

    def export(self, tensor: Any) -> Export:
        torch, index, where = self._torch, tensor.device.index, tensor.data_ptr()
        with self._driver.context(index):
            region = self._driver.allocation(where)
            handle = _Handle()
            self._driver.call("cuIpcGetMemHandle", ctypes.byref(handle), _pointer(region.base))
        with torch.cuda.device(index):
            event = torch.cuda.Event(interprocess=True)
            event.record(torch.cuda.current_stream(index))
            return Export(bytes(handle.data), where - region.base, bytes(event.ipc_handle()), event)

    def open(self, index: int, handle: bytes) -> Region:
        if len(handle) != ctypes.sizeof(_Handle):
            raise CannotShare(f"a handle of {len(handle)} bytes is none of a CUDA allocation")
        base = _pointer()
        with self._driver.context(index):
            self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
            return self._driver.allocation(base.value)

    def close(self, index: int, region: Region) -> None:
        with contextlib.suppress(CannotShare), self._driver.context(index):   # the device fails every request: nothing is open either
            self._driver.call("cuIpcCloseMemHandle", _pointer(region.base))

    def wait(self, index: int, ready: bytes) -> None:
        torch = self._torch
        with torch.cuda.device(index):
            event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", index), ready)
            torch.cuda.current_stream(index).wait_event(event)

    def view(self, index: int, region: Region, offset: int, size: int, keep: Any) -> Any:
        window = _Window(region.base + offset, size, keep)
        return self._torch.as_tensor(window, device=self._torch.device("cuda", index))

    def finish(self, index: int, everything: bool = False) -> None:
        torch = self._torch
        torch.cuda.synchronize(index) if everything else torch.cuda.current_stream(index).synchronize()

    def place(self, tensor: Any, index: int) -> Any:
        return tensor.to(self._torch.device("cuda", index))
