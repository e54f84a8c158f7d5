"""This ComfyUI's isolated packs: one pool for all, made when the first of them registers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from comfy_env.comfyui import core, requirements, snapshot, status
from comfy_env.comfyui.gate import Gate
from comfy_env.comfyui.home import ENTRY, Home
from comfy_env.comfyui.isolated import Isolated
from comfy_env.comfyui.memory import Memory
from comfy_env.comfyui.paths import HostState
from comfy_env.comfyui.prompts import Epoch, InterruptWatch
from comfy_env.envs.paths import bytecode_folder
from comfy_env.errors import ComfyEnvError
from comfy_env.packs.snapshot import Snapshot
from comfy_env.settings import Settings
from comfy_env.values import CallOptions, EnvPlan

if TYPE_CHECKING:
    from comfy_env.pool import WorkerPool

log = logging.getLogger(__name__)
SERVING = frozenset({"ready", "busy", "pinging", "releasing"})
"""The states of a record in which its worker is well."""


class Host:
    """``isolated`` holds every environment that registered, by its key."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.read()
        self.isolated: dict[str, Isolated] = {}
        self.state = HostState(bytecode_folder(self.settings))
        self.epoch = Epoch()
        self.interrupts = InterruptWatch(lambda env: self.pool.interrupt(env))
        self.memory = Memory(lambda: self.pool)
        self.callbacks: dict[str, Callable[..., Any]] = {
            "comfy_env.state": self.state.document,
            "comfy_env.interrupt": _interrupt,
            "comfy_env.room": self.memory.room,
            "request_vram_budget": self._budget,
        }
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._pool: WorkerPool | None = None
        self._ended: set[tuple[str, int]] = set()

    @property
    def pool(self) -> WorkerPool:
        """The one pool of all environments. Not even imported before it is needed: ComfyUI waits while packs register."""
        if self._pool is None:
            with self._opening:
                self._pool = self._pool or _opened(self)
        return self._pool

    def add(self, plan: EnvPlan, home: Home, known: Snapshot) -> Isolated:
        """Take in an environment of a pack that registers."""
        with self._lock:
            if not self.isolated:
                self._begin()
            env = self.isolated[plan.key] = Isolated(self, plan, home, known)
        return env

    @property
    def receipts(self) -> dict[str, str]:
        """What each worker gave back at the last `/free`."""
        return self.memory.receipts

    def _begin(self) -> None:
        """Do what only a ComfyUI with an isolated pack needs: check what it offers, watch its requests, add the page."""
        missing = requirements.check()
        refused = [name for name, severity in missing.items() if severity == requirements.REFUSE]
        if refused:
            this = f"this ComfyUI ({core.version() or 'of unknown version'})" if core.is_here() else "this process is no ComfyUI and"
            raise ComfyEnvError(f"{this} cannot run isolated packs: it has no {refused[0]}")
        Gate(self.epoch, lambda: self.isolated, self.memory.free).install()
        status.install(self)
        snapshot.remember_comfyui(self.settings)

    def after_call(self, env: Isolated, generation: int, models: Iterable[Mapping[str, Any]]) -> None:
        """Take over what the worker holds now, on the prompt thread, and have a stale description of the pack renewed."""
        if models or self.memory.shelf.of(env.plan.key):
            self.pool.stand_ins(env.plan, generation, self.memory.shelf.settle(env.plan.key, generation, models))
        if generation != env.described:
            self._renew(env, generation)

    def worker_ended(self, env: str, generation: int) -> None:
        """Have core forget what lived in a worker if it did end, so that the next prompt makes it anew; told once per worker."""
        record = self.pool.record(env)
        if record is not None and record.generation == generation and record.state in SERVING:
            return
        with self._lock:
            known = (env, generation) in self._ended
            self._ended.add((env, generation))
        lost = 0 if known else self.references(env, generation)
        queue = getattr(core.server(), "prompt_queue", None)
        if lost and queue is not None:
            queue.set_flag("free_memory", True)
            log.warning("%d values of core's cache lived in the worker of env %s that ended: the next prompt makes them anew", lost, env)

    def references(self, env: str, generation: int) -> int:
        """Return how many references to objects of a worker are alive here."""
        seat = next((seat for seat in self.pool.seats() if seat.key == env), None)
        worker = seat.workers.get(generation) if seat is not None else None
        return worker.session.codec.references if worker is not None and worker.session is not None else 0

    def _budget(self, total_size: int = 0) -> int:
        """Answer packs that ask how much of a model they may load: make room, and say how many bytes are free."""
        device = str(core.module("comfy.model_management").get_torch_device())
        return int(self.memory.room(device, int(total_size))["free"])

    def _renew(self, env: Isolated, generation: int) -> None:
        """Have a worker that imported the pack anyway describe it, where what is served was taken of something else."""
        env.described = generation
        if snapshot.is_stale(env.snapshot, env.plan, env.home, self.settings):
            threading.Thread(target=self._describe_anew, args=(env,), name="comfy-env snapshot", daemon=True).start()

    def _describe_anew(self, env: Isolated) -> None:
        order = {"state": self.state.version(), "pack": env.home.order()}
        try:
            description = self.pool.call(env.plan, f"{ENTRY}:describe", order, options=CallOptions(callbacks=self.callbacks))
            env.renew(snapshot.keep(env.plan, env.home, self.settings, description))
        except Exception as error:  # the old snapshot still serves; the next worker is asked again
            log.warning("the nodes of env %s could not be described anew: %s", env.plan.key, error)


def _opened(host: Host) -> WorkerPool:
    from comfy_env.comfyui.serving import open_pool

    return open_pool(host)


def _interrupt() -> None:
    """A node asked for the interrupt of what runs."""
    core.module("nodes").interrupt_processing()


@cache
def host() -> Host:
    """Return the one host of this process."""
    return Host()
