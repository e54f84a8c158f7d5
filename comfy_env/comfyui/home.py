"""Where a pack is for its worker, and what an environment needs of the host it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from comfy_env.comfyui.paths import HostState
from comfy_env.comfyui.prompts import Epoch, InterruptWatch

if TYPE_CHECKING:
    from comfy_env.pool import WorkerPool

ENTRY = "comfy_env.worker.comfy.entry"


@dataclass(frozen=True)
class Home:
    """A pack's folder, the name of its module in this process, the packages its classes come from, a file with its codecs."""

    folder: str
    module: str
    packages: tuple[str, ...] = ()
    codecs: str = ""

    def order(self) -> dict[str, Any]:
        """Return it as a worker takes it."""
        return {"folder": self.folder, "module": self.module, "packages": list(self.packages), "codecs": self.codecs}


class Surroundings(Protocol):
    """What an environment needs of its host."""

    state: HostState
    epoch: Epoch
    interrupts: InterruptWatch
    callbacks: dict[str, Callable[..., Any]]

    @property
    def pool(self) -> WorkerPool: ...
    def worker_ended(self, env: str, generation: int) -> None: ...
    def after_call(self, env: Any, generation: int, models: Iterable[Mapping[str, Any]]) -> None: ...
