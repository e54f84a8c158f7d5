"""What all environments of one pool share: the run folder, the watcher, the settings, the ports, the observers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

from comfy_env import ports
from comfy_env.errors import PoolClosed
from comfy_env.hooks.observers import Observers
from comfy_env.hooks.registry import Registry
from comfy_env.pool.clocks import LivedClock
from comfy_env.pool.reload import Reloader
from comfy_env.pool.rereading import Reread
from comfy_env.pool.seat import Seat
from comfy_env.pool.watcher import Watcher
from comfy_env.process import sweep
from comfy_env.process.rundir import HostRun
from comfy_env.settings import Settings

log = logging.getLogger(__name__)


class House:
    """Opens nothing until the first spawn; `host_run` then locks a run folder and sweeps what dead hosts left."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        observers: tuple[object, ...],
        *,
        clock: ports.Clock | None,
        shelf: ports.StandInShelf,
        prompt: ports.Prompt,
        memory: ports.Memory,
        seats: Callable[[], Iterable[Seat]],
        tick: Callable[[], None],
        born: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.registry = registry
        self._given = observers
        self.shelf, self.prompt, self.memory = shelf, prompt, memory
        self.lived = LivedClock()
        self.now: Callable[[], float] = clock.now if clock else self.lived.now
        self.watcher = Watcher(self.lived, self.now, seats, tick, settings.tick)
        self.reloader = Reloader(seats)
        self.idle_reap = Reread(settings, "idle_reap")
        self._seats = seats
        self._born = born
        self._lock = threading.Lock()
        self._run: HostRun | None = None
        self._closed = False

    @cached_property
    def observers(self) -> Observers:
        """Those that are installed and those given to the pool; looked for when the first thing happens."""
        told = self.registry.observers
        for observer in self._given:
            told.add(observer)
        return told

    def host_run(self) -> HostRun:
        """Return the host's run folder, made at the first spawn."""
        with self._lock:
            if self._closed:
                raise PoolClosed("the pool was closed; nothing spawns after that", hint="make a new WorkerPool")
            if self._run is None:
                self._sweep_dead_hosts()
                self._run = HostRun.open(self.settings.runtime_folder)
                self.watcher.start()
                self._born()
            return self._run

    @property
    def opened(self) -> HostRun | None:
        """The run folder if there is one."""
        return self._run

    def _sweep_dead_hosts(self) -> None:
        try:
            report = sweep.sweep(self.settings.runtime_folder)
        except OSError as error:
            log.warning("the sweep of dead hosts failed: %s", error)
        else:
            log.debug("sweep: %s", report)

    def log_file(self, key: str) -> Path:
        """Return the log file of an environment's workers."""
        folder = self.settings.log_folder or self.host_run().log_folder
        return folder / f"{key}.log"

    def close(self) -> None:
        """Stop the threads and remove the run folder; every worker must be gone."""
        with self._lock:
            self._closed = True
            run, self._run = self._run, None
        self.reloader.close()
        for seat in self._seats():
            if seat.keeper is not None:
                seat.keeper.close()
        self.watcher.stop()
        if run is not None:
            run.close()
