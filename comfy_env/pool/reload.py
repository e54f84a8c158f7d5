"""Looks whether living workers have become stale: their packs' sources where that is asked for, and their environments.

A thread of its own, started with the first worker that can become stale: what it looks at may be slow, and the watcher
must never wait. It only posts events; the machine replaces the worker at its next idle moment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from comfy_env import errors
from comfy_env.envs import source_watch
from comfy_env.envs.source_watch import SourceWatch
from comfy_env.lifecycle import events
from comfy_env.lifecycle.record import SERVING
from comfy_env.pool.seat import Seat, Worker
from comfy_env.values import EnvStatus

log = logging.getLogger(__name__)
JOIN = 5.0
"""Seconds a closing pool waits for a look that is under way."""


class Reloader:
    def __init__(self, seats: Callable[[], Iterable[Seat]]) -> None:
        self._seats = seats
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dues: dict[Worker, float] = {}

    def attend(self, seat: Seat, worker: Worker) -> None:
        """Look after a worker from its birth on, if anything can make it stale; called before it is started."""
        if seat.env.limits.source_poll and "own_process" in worker.relay.capabilities:
            worker.sources = SourceWatch(worker.launch.plan.roots)
        worker.built = seat.plan.interpreter is None and worker.relay.provisions
        if worker.sources is not None or worker.built:
            self._start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(JOIN)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="comfy-env sources", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._pause()):
            for seat, worker in self._living():
                if self._dues.get(worker, 0.0) <= time.monotonic():
                    self._dues[worker] = time.monotonic() + _period(seat, worker)
                    _look(seat, worker)

    def _pause(self) -> float:
        living = self._living()
        self._dues = {worker: due for worker, due in self._dues.items() if any(worker is other for _, other in living)}
        return min((_period(seat, worker) for seat, worker in living), default=1.0)

    def _living(self) -> list[tuple[Seat, Worker]]:
        found = [(seat, seat.worker) for seat in self._seats() if seat.env.row.state in SERVING]
        return [(seat, worker) for seat, worker in found if worker is not None and (worker.sources is not None or worker.built)]


def _period(seat: Seat, worker: Worker) -> float:
    limits = seat.env.limits
    return min(limits.tick, limits.source_poll) if worker.sources is not None else limits.tick


def _look(seat: Seat, worker: Worker) -> None:
    try:
        if worker.sources is not None:
            _look_at_sources(seat, worker, worker.sources)
        if worker.built:
            _look_at_env(seat, worker)
    except (errors.ComfyEnvError, OSError) as error:
        log.warning("[%s] it cannot be told whether its worker is stale: %s", seat.key, error)


def _look_at_sources(seat: Seat, worker: Worker, watch: SourceWatch) -> None:
    change = watch.poll()
    if change is None:
        return
    fault = source_watch.fault_of(change.paths, worker.interpreter) if change.settled else ""
    _post(seat, worker, events.SourceChanged(fault, settled=change.settled and not fault))


def _look_at_env(seat: Seat, worker: Worker) -> None:
    """See whether the environment was built anew since the worker was born, by whichever process."""
    state = worker.relay.inspect(seat.plan, probe=False)
    if state is not None and state.status is EnvStatus.READY and str(state.interpreter) != worker.interpreter:
        worker.built = False
        _post(seat, worker, events.EnvChanged())


def _post(seat: Seat, worker: Worker, event: events.Event) -> None:
    """Post what concerns this worker only: the next one is born with what is there now."""
    seat.post_if(lambda env: env.row.generation == worker.generation, event)
