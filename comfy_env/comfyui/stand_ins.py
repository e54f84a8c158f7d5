"""Stand-ins in core's list of loaded models for the models that workers hold, so that core counts and evicts them.

Core walks its list while it asks the entries, so nothing of ours changes the list except between two nodes, on the prompt
thread. An entry whose worker is gone stays and answers as already unloaded until then. No method that core may call ever
raises: core calls some of them where an exception would end its prompt thread for good.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from comfy_env.comfyui import core

log = logging.getLogger(__name__)
Evict = Callable[[str, str, int | None], int]
"""Frees a model of an environment's worker, or so many bytes of it, by its name there; returns the bytes freed."""


class Weights:
    """What core takes for the model itself; it lives exactly as long as its stand-in."""

    def __init__(self, device: Any, loaded: int) -> None:
        self.device = device
        self.model_loaded_weight_memory = loaded
        self.model_lowvram = False
        self.lowvram_patch_counter = 0
        self.current_weight_patches_uuid = None
        self.model_offload_buffer_memory = 0


class StandIn:
    """Answers core for one model of one worker."""

    parent = None

    def __init__(self, env: str, generation: int, told: Mapping[str, Any], device: Any, evict: Evict) -> None:
        self.env, self.generation, self.name = env, generation, str(told["name"])
        self.load_device = device
        self.offload_device = _cpu()
        self.clone_base_uuid = uuid.uuid4()
        self.model = type(str(told.get("class", "Weights")), (Weights,), {})(device, 0)
        self._evict = evict
        self._size = 0
        self.alive = True
        self.take(told)

    def take(self, told: Mapping[str, Any]) -> None:
        """Take over what the worker tells of the model now."""
        self._size = int(told["size"])
        self.model.model_loaded_weight_memory = int(told["loaded"])

    def empty(self) -> None:
        """Count as unloaded from here on."""
        self.model.model_loaded_weight_memory = 0

    # ---- what core asks

    def model_size(self) -> int:
        return self._size

    def loaded_size(self) -> int:
        return self.model.model_loaded_weight_memory if self.alive else 0

    def loaded_ram_size(self) -> int:
        return 0

    def model_dtype(self) -> Any:
        return None

    def current_loaded_device(self) -> Any:
        return self.load_device if self.loaded_size() else self.offload_device

    def model_patches_models(self) -> list[Any]:
        return []

    def get_nested_additional_models(self) -> list[Any]:
        return []

    def model_patches_to(self, device: Any) -> None:
        """Patches are the worker's own."""

    def is_clone(self, other: Any) -> bool:
        return other is self

    def is_dynamic(self) -> bool:
        return False

    def lowvram_patch_counter(self) -> int:
        return 0

    def partially_load(self, device: Any = None, extra_memory: Any = 0, force_patch_weights: bool = False) -> int:
        """The worker loads what it needs when it needs it."""
        return 0

    def partially_unload(self, device: Any = None, memory_to_free: Any = 0, force_patch_weights: bool = False) -> int:
        return self._freed(_bytes(memory_to_free, self._size))

    def partially_unload_ram(self, ram_to_unload: Any = 0, **more: Any) -> int:
        return 0

    def unregister_inactive_pins(self, ram_to_unload: Any = 0, **more: Any) -> int:
        return 0

    def detach(self, unpatch_all: bool = True) -> None:
        self._freed(None)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            log.warning("core %s asks a stand-in for %r, which it does not have", core.version(), name)
        raise AttributeError(f"a stand-in for a model in another process has no {name!r} (core {core.version()})")

    def _freed(self, want: int | None) -> int:
        if not self.alive or not self.loaded_size():
            return 0
        try:
            freed = max(0, int(self._evict(self.env, self.name, want)))
        except Exception as error:  # core must get a number, whatever happened to the worker
            log.warning("a model in env %s could not be unloaded: %s: %s", self.env, type(error).__name__, error)
            return 0
        left = 0 if want is None else max(0, self.loaded_size() - freed)
        self.model.model_loaded_weight_memory = left
        return freed


def _bytes(asked: Any, most: int) -> int:
    """Return core's wish as whole bytes: it may be a sentinel of 1e32, negative or no number."""
    try:
        return max(0, min(int(asked), most))
    except (ValueError, OverflowError, TypeError):
        return most


def _cpu() -> Any:
    torch = core.loaded("torch")
    return "cpu" if torch is None else torch.device("cpu")


def device_of(text: str) -> Any:
    """Return a device as core compares it."""
    management, torch = core.loaded("comfy.model_management"), core.loaded("torch")
    if torch is None or management is None or isinstance(management.get_torch_device(), str):
        return text
    return torch.device(text)


class Shelf:
    """All stand-ins of this host, by environment; also the pool's port for the quarantine of a dead worker's."""

    def __init__(self, evict: Evict) -> None:
        self._evict = evict
        self._lock = threading.Lock()
        self._kept: dict[str, list[StandIn]] = {}

    def of(self, env: str) -> list[StandIn]:
        with self._lock:
            return list(self._kept.get(env, ()))

    # ---- the pool's port, from any thread: core's list is not touched

    def quarantine(self, env: str, generation: int) -> None:
        for one in self.of(env):
            if one.generation <= generation:
                one.alive = False

    def drop_quarantine(self, env: str) -> None:
        """Let go of dead stand-ins that core's list no longer has."""
        listed = {id(entry.model) for entry in _list()}
        with self._lock:
            self._kept[env] = [one for one in self._kept.get(env, ()) if one.alive or id(one) in listed]

    def emptied(self, env: str) -> None:
        """The worker gave back everything."""
        for one in self.of(env):
            one.empty()

    # ---- on the prompt thread, between two nodes

    def settle(self, env: str, generation: int, models: Iterable[Mapping[str, Any]]) -> int:
        """Bring core's list up to date with what a worker holds; return how many stand-ins it has there now."""
        told = {str(model["name"]): model for model in models if int(model["loaded"]) > 0}
        kept = []
        for one in self.of(env):
            news = told.pop(one.name, None) if one.alive and one.generation == generation else None
            if news is None:
                _unlist(one)
            else:
                one.take(news)
                kept.append(one)
        kept += [StandIn(env, generation, model, device_of(str(model["device"])), self._evict) for model in told.values()]
        with self._lock:
            self._kept[env] = kept
        for one in kept:
            _enlist(one)
        return len(kept)


def _list() -> list[Any]:
    found = getattr(core.loaded("comfy.model_management"), "current_loaded_models", None)
    return found if found is not None else []


def _enlist(one: StandIn) -> None:
    """Put a stand-in into core's list as a fully formed entry, unless it is there."""
    if any(entry.model is one for entry in _list()):
        return
    management = core.module("comfy.model_management")
    entry = management.LoadedModel(one)
    entry.currently_used = False
    entry.real_model = weakref.ref(one.model)
    entry.model_finalizer = weakref.finalize(one.model, management.cleanup_models)
    entry.model_finalizer.atexit = False
    management.current_loaded_models.append(entry)


def _unlist(one: StandIn) -> None:
    """Take a stand-in out of core's list, with the finalizer that would walk the list when it dies."""
    entries = _list()
    for entry in [entry for entry in entries if entry.model is one]:
        if entry.model_finalizer is not None:
            entry.model_finalizer.detach()
        with contextlib.suppress(ValueError):   # core took it out itself
            entries.remove(entry)
