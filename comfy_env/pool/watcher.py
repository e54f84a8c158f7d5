"""The one watcher thread: exits, output pipes and the tick. It only posts events.

Started before the first spawn. It waits on every process's exit handle, crash pipe and output pipes at once; its time-out is the next
limit of any environment or the next sweep, whichever is first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from comfy_env.lifecycle import events
from comfy_env.lifecycle.machine import next_due
from comfy_env.pool import crashes
from comfy_env.pool.clocks import LivedClock
from comfy_env.pool.exits import EXIT_WAIT, LOOK, complain, handle_of, status_of, unknown
from comfy_env.pool.seat import Seat, Worker
from comfy_env.process.patience import SLICE

log = logging.getLogger(__name__)
PAUSE = 0.05
"""Seconds the watcher rests after an error of its own."""


@dataclass(frozen=True, eq=False)
class Watched:
    seat: Seat
    worker: Worker
    is_exit: bool
    is_crash: bool = False


@dataclass(eq=False)
class Doubt:
    """A worker whose exit is looked at by time: its exit handle says it ended and its status does not, or no handle can be watched."""

    seat: Seat
    worker: Worker
    until: float     # by the watcher's own clock; after that its word is taken
    due: float = 0.0


class Watcher:
    """``add`` and ``remove`` may be called from any thread once it is started; descriptors are (un)registered on its own.

    `now` is the machine's clock, by which limits are judged; `clock` counts the watcher's own lived time.
    """

    def __init__(
        self,
        clock: LivedClock,
        now: Callable[[], float],
        seats: Callable[[], Iterable[Seat]],
        sweep: Callable[[], None],
        period: float,
    ) -> None:
        self._clock = clock
        self._now = now
        self._seats = seats
        self._sweep = sweep
        self._period = period
        self._lock = threading.Lock()
        self._todo: list[Callable[[], None]] = []
        self._stopping = False
        self._until = float("inf")
        self._swept = 0.0
        self._doubts: dict[Worker, Doubt] = {}
        self._thread: threading.Thread | None = None

    def add(self, seat: Seat, worker: Worker) -> None:
        """Watch a worker's exit and output from now on."""
        self._do(lambda: self._register(seat, worker))

    def remove(self, worker: Worker) -> None:
        """Stop watching a worker; its descriptors may be closed when this returns."""
        done = threading.Event()

        def unregister() -> None:
            self._unregister(worker)
            done.set()

        with self._lock:
            registered, worker.watched = worker.watched, True  # one that still waits to be registered is not, then
        if self._stopping or not registered:
            return
        if threading.current_thread() is self._thread:
            unregister()
            return
        self._do(unregister)
        while self._thread is not None and self._thread.is_alive() and not done.wait(0.5):
            log.debug("waiting for the watcher")

    def wake_by(self, due: float) -> None:
        """Make the watcher look at the limits no later than `due`, by the machine's clock."""
        if self._thread is not None and due < self._until:
            self._do(lambda: None)

    def stop(self) -> None:
        """End the thread and close what it watched with."""
        thread = self._thread
        self._stopping = True
        if thread is not None:
            self._do(lambda: None)
            thread.join()
            self._clock.attend(False)
            with self._lock:
                self._thread = None
                self._selector.close()
                os.close(self._wake_read)
                os.close(self._wake_write)

    def start(self) -> None:
        """Start the thread; idempotent."""
        with self._lock:
            if self._thread is None:
                self._open()
                self._clock.attend(True)
                self._thread = threading.Thread(target=self._watch, name="comfy-env watcher", daemon=True)
                self._thread.start()

    def _open(self) -> None:
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)

    def _do(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._todo.append(job)
            if self._thread is not None:
                with contextlib.suppress(OSError):  # it is awake already, or looks by itself within a slice
                    os.write(self._wake_write, b"x")

    def _register(self, seat: Seat, worker: Worker) -> None:
        process = worker.process
        with self._lock:
            if process is None or worker.watched:
                return
            worker.watched = True
        handle = handle_of(seat, worker)
        if handle is not None:
            self._select(handle, Watched(seat, worker, True))
        elif worker.complained:
            self._doubts[worker] = Doubt(seat, worker, float("inf"))
        for fd in process.outputs:
            self._select(fd, Watched(seat, worker, False))
        if worker.crashes is not None and worker.crashes.fileno() >= 0:
            self._select(worker.crashes.fileno(), Watched(seat, worker, False, is_crash=True))

    def _select(self, fd: int, watched: Watched) -> None:
        try:
            self._selector.register(fd, selectors.EVENT_READ, watched)
        except (OSError, ValueError, KeyError) as error:  # a descriptor of a backend's own that cannot be waited on
            what = "exit handle" if watched.is_exit else "output"
            complain(watched.seat, watched.worker, f"the {what} {fd!r} cannot be watched: {type(error).__name__}: {error}")
            if watched.is_exit:
                self._doubts[watched.worker] = Doubt(watched.seat, watched.worker, float("inf"))

    def _unregister(self, worker: Worker) -> None:
        self._doubts.pop(worker, None)
        for key in list(self._selector.get_map().values()):
            if key.data is not None and key.data.worker is worker:
                self._selector.unregister(key.fd)

    def _watch(self) -> None:
        self._swept = self._clock.now()
        while not self._stopping:
            try:
                self._look()
            except Exception:  # a defect must not end the one thread that sees deaths and limits
                log.exception("the watcher goes on after an error")
                time.sleep(PAUSE)

    def _look(self) -> None:
        ready = self._selector.select(self._timeout())
        self._clock.mark()
        for key, _ in ready:
            self._handle(key)
        self._run_todo()
        self._look_at_doubts()
        if self._clock.now() - self._swept >= self._period:
            self._swept = self._clock.now()
            self._sweep()
        else:
            self._limits()

    def _timeout(self) -> float:
        self._until = float("inf")   # before the limits are read: one that becomes earlier from here on wakes the watcher
        now = self._now()
        waits = [due - now for seat in self._seats() if (due := next_due(seat.env)) is not None]
        doubts = [doubt.due - self._clock.now() for doubt in self._doubts.values()]
        wait = min(max(0.0, min([self._swept + self._period - self._clock.now(), *waits, *doubts])), SLICE)
        self._until = now + wait
        return wait

    def _limits(self) -> None:
        now = self._now()
        for seat in self._seats():
            due = next_due(seat.env)
            if due is not None and due <= now:
                seat.post(events.Tick())

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._drain_wake()
            return
        watched: Watched = key.data
        if watched.is_exit:
            self._exited(key.fd, watched)
        elif watched.is_crash:
            self._crashed(key.fd, watched)
        elif not watched.worker.feed(key.fd):
            self._selector.unregister(key.fd)

    def _crashed(self, fd: int, watched: Watched) -> None:
        pipe = watched.worker.crashes
        if crashes.post_told(watched.seat, watched.worker) or pipe is None or pipe.fileno() < 0:
            self._selector.unregister(fd)  # it has nothing more to say

    def _exited(self, fd: int, watched: Watched) -> None:
        self._selector.unregister(fd)  # from here on it is readable for ever
        crashes.post_told(watched.seat, watched.worker)  # whichever of the two was looked at first, the stack is told
        status = status_of(watched.seat, watched.worker)
        if status is not None:
            watched.seat.post(events.ProcessExited(watched.worker.generation, status))
        else:
            now = self._clock.now()
            self._doubts[watched.worker] = Doubt(watched.seat, watched.worker, now + EXIT_WAIT, now + LOOK)

    def _look_at_doubts(self) -> None:
        for doubt in [doubt for doubt in self._doubts.values() if doubt.due <= self._clock.now()]:
            self._settle(doubt)

    def _settle(self, doubt: Doubt) -> None:
        """Look once more at a status that is late; take the handle's word for it when it is too late."""
        seat, worker, now = doubt.seat, doubt.worker, self._clock.now()
        status = status_of(seat, worker)
        if status is None and now >= doubt.until:
            complain(seat, worker, "its exit handle says that the process ended, exit_status does not say how")
            status = worker.exit_seen = unknown(worker)
        if status is None:
            doubt.due = now + (LOOK if doubt.until < float("inf") else SLICE)
            return
        self._doubts.pop(worker, None)
        seat.post(events.ProcessExited(worker.generation, status))

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # nothing more to read
            while os.read(self._wake_read, 4096):
                continue

    def _run_todo(self) -> None:
        with self._lock:
            todo, self._todo = self._todo, []
        for job in todo:
            self._run(job)

    @staticmethod
    def _run(job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:  # the jobs after it are waited for
            log.exception("the watcher goes on after an error")

