"""The zygote's keeper: when an environment's zygote is made, used, given up and ended.

A zygote is a shortcut and never a condition: whatever is wrong with it, the worker is started plainly, and one line of the
log says why. It is made from what the backend would start, by the first birth that knows what to import in advance.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comfy_env import errors
from comfy_env.envs import preloads
from comfy_env.lifecycle import events
from comfy_env.pool.seat import Seat, has_process
from comfy_env.process import zygote as zygotes
from comfy_env.process.patience import Patience
from comfy_env.process.rundir import WorkerRun
from comfy_env.process.zygote import ForkFailed, Zygote
from comfy_env.values import Launch, Process

if TYPE_CHECKING:
    from comfy_env.hooks.relay import Relay
    from comfy_env.pool.house import House

log = logging.getLogger(__name__)
TRIAL = 20.0
"""Seconds the trial's child may compute before forking is given up for the environment."""
PATIENCE = 0.5
"""The part of a spawn's limit that a birth waits for a zygote which is not ready yet."""
CHANGES = 3
"""Zygotes in a row that no second worker could be forked from, its program or variables being others, after which no more are made."""
LOSSES = 2
"""Zygotes lost in a row, or births from them that came to nothing, after which no more are made."""


class Keeper:
    """One environment's. It is the `Forker` of its launches."""

    def __init__(self, seat: Seat, folder: Path, new_run: Callable[[], WorkerRun]) -> None:
        self._seat = seat
        self._folder = folder
        self._new_run = new_run
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._old: list[Zygote] = []
        self._barred = ""            # the interpreter that no zygote is made of
        self._losses = 0
        self._useless = 0
        self._unproved: int | None = None
        self._quiet: float | None = None
        self._closed = False
        self._seen: set[str] = set()
        self._hidden: tuple[str, ...] = ()

    @property
    def pid(self) -> int | None:
        """The number of the zygote that serves, None while there is none."""
        zygote = self._zygote
        return zygote.pid if zygote is not None and zygote.serves else None

    def modules(self) -> tuple[str, ...]:
        """Return what a zygote of this environment would import in advance."""
        names = {*preloads.read(self._folder), *self._seen}
        return preloads.not_shadowed(sorted(names), self._seat.plan.roots)

    def saw(self, names: Iterable[str]) -> None:
        """Remember that a worker imported these heavy modules."""
        self._seen.update(names)
        preloads.add(self._folder, names)

    # ---- births

    def fork(self, launch: Launch) -> Process | None:
        """Return the launch's worker, forked; None where it must be started plainly."""
        modules = self.modules()
        zygote = self._fit(launch, modules)
        patience = Patience(self._seat.env.limits.spawn * PATIENCE)
        if zygote is None or not patience.wait(zygote.warmed.wait) or not self._may_fork(zygote, launch, modules):
            return None
        try:
            process = zygote.fork(launch)
        except ForkFailed as error:
            self._lose(zygote, error.message, launch.interpreter)
            return None
        self._unproved = launch.generation
        self._seat.log.debug("[%s #%s] forked by zygote %d", self._seat.key, launch.generation, zygote.pid)
        return process

    def _may_fork(self, zygote: Zygote, launch: Launch, modules: Sequence[str]) -> bool:
        """Tell whether a zygote that came to serve has nothing that this launch's worker would have otherwise."""
        if not zygote.serves or not zygote.is_for(launch, modules):
            return False
        hidden = preloads.shadowed(zygote.loaded, map(Path, launch.import_roots))
        if hidden and hidden != self._hidden:
            self._seat.remark(f"its zygote is not used: the pack has modules of its own that it would hide: {', '.join(hidden[:6])}")
        self._hidden = hidden
        return not hidden

    def proved(self, generation: int) -> None:
        """Hear that a worker came to serve."""
        if self._unproved == generation:
            self._unproved, self._losses = None, 0

    def _fit(self, launch: Launch, modules: Sequence[str]) -> Zygote | None:
        """Return the zygote for a launch, made now if there is none."""
        if zygotes.make_of(launch) is None or launch.interpreter == self._barred or self._came_to_nothing(launch):
            return None
        with self._lock:
            old = self._zygote
            if old is not None and (not old.lives() or old.warmed.is_set() and not (old.serves and old.is_for(launch, modules))):
                self._zygote, self._old = None, [*self._old, old]
            else:
                old = None
            if self._zygote is None and not self._closed:
                self._zygote = self._make(launch)
            found = self._zygote
        if old is not None:
            self._seat.post(events.ZygoteLost())
            old.retire()
            self._count_useless(old, launch)
        return found

    def _count_useless(self, old: Zygote, launch: Launch) -> None:
        self._useless = self._useless + 1 if old.forks < 2 and old.make != zygotes.make_of(launch) else 0
        if self._useless >= CHANGES:
            self._bar(launch.interpreter, "what its workers are started with changes from one to the next")
            self.drop()

    def _came_to_nothing(self, launch: Launch) -> bool:
        """Give the zygote up if the last worker forked from it was never proved; this birth goes without."""
        failed, self._unproved = self._unproved, None
        if failed is None:
            return False
        self._lose(self._zygote, f"generation {failed}, forked from it, never came to serve", launch.interpreter)
        return True

    def _make(self, launch: Launch) -> Zygote | None:
        try:
            zygote = Zygote.start(launch, self._new_run(), self.modules(), TRIAL)
        except (errors.ComfyEnvError, OSError) as error:
            self._seat.log.info("[%s] no zygote could be started: %s", self._seat.key, error)
            return None
        thread = threading.Thread(target=self._warm, args=(zygote, launch), name=f"comfy-env zygote {self._seat.key}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # an interpreter that exits may start no thread any more
            self._seat.log.debug("[%s] no zygote is waited for: %s", self._seat.key, error)
            zygote.warmed.set()
            zygote.end()
            return None
        return zygote

    def _warm(self, zygote: Zygote, launch: Launch) -> None:
        zygote.warm(self._seat.env.limits.birth + TRIAL)
        with self._lock:
            current = self._zygote is zygote and not self._closed
        if not current:
            return
        if zygote.serves:
            self._seat.remark(f"a zygote serves (pid {zygote.pid})")
            self._seat.post(events.ZygoteUp())
        else:
            self._bar(launch.interpreter, zygote.refusal)
            self.drop()

    # ---- ends

    def drop(self) -> None:
        """Fork no more from the present zygote; it ends when its last child was collected."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
            if zygote is not None:
                self._old.append(zygote)
        if zygote is not None:
            zygote.retire()

    def close(self) -> None:
        """End every zygote; none is made afterwards."""
        with self._lock:
            self._closed = True
            every, self._zygote, self._old = [*self._old, *([self._zygote] if self._zygote else [])], None, []
        for zygote in every:
            zygote.end()

    def tend(self) -> None:
        """Give up a zygote that ended, or that nobody has needed for long."""
        with self._lock:
            zygote, self._old = self._zygote, [old for old in self._old if not old.ended]
            dead = [old for old in self._old if not old.lives()]
        for old in dead:
            old.end()
        if zygote is None:
            return
        if not zygote.lives() and zygote.warmed.is_set():
            self._lose(zygote, f"it {zygote.process.exit_status()}", "")
        elif self._is_idle():
            self.drop()
            self._seat.post(events.ZygoteLost())

    def is_due(self) -> bool:
        """Tell whether `tend` has something to do."""
        zygote = self._zygote
        return any(not old.lives() for old in self._old) or zygote is not None and (not zygote.lives() or self._is_idle())

    def _is_idle(self) -> bool:
        seat = self._seat
        now = seat.clock()
        if has_process(seat.env):
            self._quiet = None
        elif self._quiet is None:
            self._quiet = now
        return self._quiet is not None and now - self._quiet >= seat.env.limits.zygote_idle

    def _lose(self, zygote: Zygote | None, why: str, interpreter: str) -> None:
        with self._lock:
            mine = zygote is not None and self._zygote is zygote
            if mine:
                self._zygote = None
        if zygote is not None:
            zygote.end()
        if not mine:
            return
        self._losses += 1
        self._seat.log.warning("[%s] its zygote is given up: %s", self._seat.key, why)
        self._seat.post(events.ZygoteLost())
        if self._losses >= LOSSES and interpreter:
            self._bar(interpreter, why)

    def _bar(self, interpreter: str, why: str) -> None:
        self._barred = interpreter
        line = f"its workers are started without a zygote: {why}"
        self._seat.log.warning("[%s] %s", self._seat.key, line)
        self._seat.remark(line)


GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What shows that this machine has a GPU to compute with: forking beside one is not proven, so it must be asked for."""


def _is_wanted(setting: int) -> bool:
    return bool(setting) and (setting > 1 or not any(map(os.path.exists, GPUS))) and zygotes.possible()


def equip(house: House, seat: Seat, relay: Relay, launch: Launch) -> Launch:
    """Return the launch with the environment's keeper as its forker, where one may fork it."""
    if launch.forker is not None or "forkable" not in relay.capabilities or not _is_wanted(seat.env.limits.zygote):
        return launch
    folder = preloads.folder_of(seat.plan, house.settings)
    if folder is None:
        return launch
    if seat.keeper is None:
        seat.keeper = Keeper(seat, folder, lambda: house.host_run().new_worker(seat.key, 0))
    return replace(launch, forker=seat.keeper) if seat.keeper.modules() else launch
