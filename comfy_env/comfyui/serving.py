"""The pool of this ComfyUI's isolated packs. Imported with the first call: what packs register needs none of it."""

from __future__ import annotations

from typing import Any, Protocol

from comfy_env.comfyui import serializers
from comfy_env.comfyui.memory import DeviceMemory, Memory
from comfy_env.comfyui.prompts import RunningPrompt
from comfy_env.hooks import hookimpl
from comfy_env.pool import WorkerPool, register_codec
from comfy_env.settings import Settings


class Owner(Protocol):
    """Whose pool it is."""

    settings: Settings
    memory: Memory

    def worker_ended(self, env: str, generation: int) -> None: ...


class Watch:
    """Hears of workers' deaths and releases, to keep what core remembers in step with what there is."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    @hookimpl
    def comfy_env_worker_retired(self, record: Any, reason: str) -> None:
        self._owner.worker_ended(record.env, record.generation)

    @hookimpl
    def comfy_env_worker_released(self, record: Any, freed: int, held: int) -> None:
        if not held:
            self._owner.memory.shelf.emptied(record.env)


def teach() -> None:
    """Have the codecs that packs registered used from now on."""
    while serializers.waiting:
        register_codec(*serializers.waiting.pop(0))


def open_pool(owner: Owner) -> WorkerPool:
    """Return the pool of all environments; it opens nothing before it is needed."""
    teach()
    ports = {"prompt": RunningPrompt(), "memory": DeviceMemory(), "shelf": owner.memory.shelf}
    return WorkerPool(owner.settings, observers=(Watch(owner),), **ports)   # type: ignore[arg-type]
