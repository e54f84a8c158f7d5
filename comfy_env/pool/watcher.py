"""The one watcher thread: exits, output pipes and the tick. It only posts events.

Started before the first spawn. It waits on every process's exit handle and output pipes at once; its time-out is the next
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
from comfy_env.pool.clocks import SLICE, LivedClock
from comfy_env.pool.seat import Seat, Worker

log = logging.getLogger(__name__)
PAUSE = 0.05
"""Seconds the watcher rests after an error of its own."""


@dataclass(frozen=True, eq=False)
class Watched:
    seat: Seat
    worker: Worker
    is_exit: bool


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
        handle = process.exit_handle()
        if handle is not None:
            self._selector.register(handle, selectors.EVENT_READ, Watched(seat, worker, True))
        for fd in process.outputs:
            self._selector.register(fd, selectors.EVENT_READ, Watched(seat, worker, False))

    def _unregister(self, worker: Worker) -> None:
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
        if self._clock.now() - self._swept >= self._period:
            self._swept = self._clock.now()
            self._sweep()
        else:
            self._limits()

    def _timeout(self) -> float:
        now = self._now()
        waits = [due - now for seat in self._seats() if (due := next_due(seat.env)) is not None]
        wait = min(max(0.0, min([self._swept + self._period - self._clock.now(), *waits])), SLICE)
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
        elif not watched.worker.feed(key.fd):
            self._selector.unregister(key.fd)

    def _exited(self, fd: int, watched: Watched) -> None:
        process = watched.worker.process
        status = process.exit_status() if process else None
        if status is None:
            return
        self._selector.unregister(fd)
        watched.seat.post(events.ProcessExited(watched.worker.generation, status))

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # nothing more to read
            while os.read(self._wake_read, 4096):
                continue

    def _run_todo(self) -> None:
        with self._lock:
            todo, self._todo = self._todo, []
        for job in todo:
            job()

