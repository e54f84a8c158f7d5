"""What a worker holds on a device, as it tells its host: core's own list of loaded models, and modules nobody listed.

The figures ride on every answer. A host asks for one model by the name it has here.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import Any, Optional

from .. import callback

HEADROOM = 1.1   # core's own factor for what a load needs beside the weights


class Names:
    """A lasting name for each object that is told of; the name dies with the object."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def of(self, thing: Any) -> str:
        name = self._known.get(thing)
        if name is None:
            name = self._known[thing] = f"m{next(self._numbers)}"
        return name


class Census:
    """Counts what is loaded. ``loose`` are modules that were moved to a device outside core's list."""

    def __init__(self) -> None:
        self.names = Names()
        self.loose: weakref.WeakSet[Any] = weakref.WeakSet()

    def models(self) -> list[dict[str, Any]]:
        """Return what is told of each model: name, class, bytes, bytes loaded, device."""
        if not self.loose and not self._loaded():
            return []
        listed = [self._listed(one) for one in self._loaded() if one.model is not None]
        known = {id(one.model.model) for one in self._loaded() if one.model is not None}
        return listed + [self._loose(module) for module in list(self.loose) if id(module) not in known and _size(module)]

    def held(self) -> int:
        """Return the bytes of models in main memory; those on a card are part of the allocator's own figure."""
        return sum(model["loaded"] for model in self.models() if model["device"] == "cpu")

    def unload(self) -> None:
        """Have core unload every model, and move the others to main memory."""
        management = sys.modules.get("comfy.model_management")
        if "unload_all_models" in getattr(management, "__dict__", ()):
            management.unload_all_models()   # type: ignore[union-attr]
        for one in list(self._loaded()):   # core spares what lies on another device than its first
            one.model_unload()
            self._loaded().remove(one)
        for module in list(self.loose):
            module.to("cpu")

    def unload_one(self, name: str, want: Optional[int]) -> None:
        """Free one model, or so many bytes of it."""
        for one in list(self._loaded()):
            if one.model is not None and self.names.of(one.model) == name:
                if one.model_unload(want):
                    self._loaded().remove(one)
                return
        for module in list(self.loose):
            if self.names.of(module) == name:
                module.to("cpu")

    @staticmethod
    def _loaded() -> list[Any]:
        """Return core's list. Its stand-in, where there is no torch, has none and says so with an ImportError to whoever asks."""
        found = getattr(sys.modules.get("comfy.model_management"), "__dict__", {}).get("current_loaded_models")
        return found if found is not None else []

    def _listed(self, one: Any) -> dict[str, Any]:
        patcher = one.model
        return {
            "name": self.names.of(patcher), "class": type(patcher.model).__name__, "size": int(patcher.model_size()),
            "loaded": int(patcher.loaded_size()), "device": str(one.device),
        }

    def _loose(self, module: Any) -> dict[str, Any]:
        size = _size(module)
        return {"name": self.names.of(module), "class": type(module).__name__, "size": size, "loaded": size, "device": _device(module)}


def _parts(module: Any) -> Any:
    yield from module.parameters()
    yield from module.buffers()


def _size(module: Any) -> int:
    """Return the bytes of a module that lie on a device."""
    return sum(part.numel() * part.element_size() for part in _parts(module) if part.device.type != "cpu")


def _device(module: Any) -> str:
    return next((str(part.device) for part in _parts(module) if part.device.type != "cpu"), "cpu")


census = Census()


def watch_modules(module: Any) -> None:
    """Notice every top module that a pack moves to a device by itself; sub-modules are counted with theirs."""
    cls = module.Module
    original, depth = cls._apply, [0]

    def _apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        depth[0] += 1
        try:
            moved = original(self, *args, **kwargs)
        finally:
            depth[0] -= 1
        if not depth[0] and any(part.device.type != "cpu" for part in _parts(self)):
            census.loose.add(self)
        return moved

    cls._apply = _apply


def watch_loading(module: Any) -> None:
    """Have core's loading ask the host for room first, and let the host see and free what it loaded."""
    original = module.load_models_gpu

    def load_models_gpu(models: Any, *args: Any, **kwargs: Any) -> Any:
        models = list(models)
        _ask_for_room(module, models)
        return original(models, *args, **kwargs)

    module.load_models_gpu = load_models_gpu
    if callback.workers.find() is not None:
        callback.register_cache(census.held, census.unload, census.unload_one)


def _ask_for_room(module: Any, models: list[Any]) -> None:
    """Tell the host what is about to be loaded where. It answers when it has freed what it can; the load goes on anyway."""
    wanted: dict[str, int] = {}
    for patcher in models:
        missing = max(0, int(patcher.model_size()) - int(patcher.loaded_size()))
        device = str(patcher.load_device)
        wanted[device] = wanted.get(device, 0) + missing
    for device, missing in wanted.items():
        if missing and device != "cpu" and callback.is_called():
            answer = callback.call_host("comfy_env.room", device, int(missing * HEADROOM) + int(module.minimum_inference_memory()))
            _take_over(module, answer or {})


def _take_over(module: Any, answer: dict[str, Any]) -> None:
    """Use the host's reserve, so that two processes on one card count the same."""
    if "reserve" in answer and hasattr(module, "EXTRA_RESERVED_VRAM"):
        module.EXTRA_RESERVED_VRAM = answer["reserve"]
