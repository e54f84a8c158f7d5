"""Device memory shared between core and the workers: room for a load, pressure, `/free`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from comfy_env import errors
from comfy_env.comfyui import core
from comfy_env.comfyui.prompts import prompt_thread
from comfy_env.comfyui.stand_ins import Shelf, device_of
from comfy_env.values import Want

if TYPE_CHECKING:
    from comfy_env.pool import WorkerPool

log = logging.getLogger(__name__)


class DeviceMemory:
    """The port that tells the pool whether a card is short of memory."""

    def tight(self, device: str | None) -> bool:
        management = core.loaded("comfy.model_management")
        if management is None:
            return False
        on = management.get_torch_device() if device is None else device_of(device)
        if str(on) == "cpu":
            return False
        return bool(management.get_free_memory(on) < management.minimum_inference_memory())


class Memory:
    """Evicts from workers for core, and from core and workers for a worker."""

    def __init__(self, pool: Callable[[], WorkerPool]) -> None:
        self._pool = pool
        self.shelf = Shelf(self.evict)
        self.receipts: dict[str, str] = {}

    def evict(self, env: str, model: str, want: int | None) -> int:
        """Free a model of a worker, or so many bytes of it; returns the bytes it measured."""
        released = self._pool().release(env, Want(want, "core needs the memory", model))
        return 0 if released is None else released.freed

    def room(self, device: str, needed: int) -> dict[str, Any]:
        """Make room for a worker's load as core does for its own, and say how the device stands.

        Core's list is only walked on its prompt thread; where that has no time, the load goes on with what is free.
        """
        management = core.module("comfy.model_management")
        on = device_of(device)
        if not prompt_thread.run(lambda: _make_room(management, needed, on), self._pool().settings.command_lock):
            log.warning("no eviction possible now: a load on %s goes on with what is free", device)
        free = management.get_free_memory(on)
        state = getattr(getattr(management, "vram_state", None), "name", "")
        return {"free": int(free), "vram_state": state, "reserve": int(getattr(management, "EXTRA_RESERVED_VRAM", 0))}

    def free(self) -> None:
        """Have every worker give back what it holds, busy ones when their call ends, and note what each really gave."""
        for record in self._pool().records():
            threading.Thread(target=self._free_one, args=(record.env,), name=f"comfy-env free {record.env}", daemon=True).start()

    def _free_one(self, env: str) -> None:
        try:
            released = self._pool().release(env)
        except (errors.ComfyEnvError, OSError) as error:
            self.receipts[env] = f"nothing was freed: {str(error).splitlines()[0]}"
        else:
            self.receipts[env] = f"freed {size(released.freed)}, {size(released.held)} still held" if released else "no worker"
            self.shelf.emptied(env)
        log.info("/free: env %s: %s", env, self.receipts[env])


def _make_room(management: Any, needed: int, device: Any) -> None:
    management.free_memory(needed, device)


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count} bytes"
