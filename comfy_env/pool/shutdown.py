"""The clean stop: one deadline for all workers, and what makes it happen when the interpreter exits."""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Iterable
from typing import Protocol

from comfy_env.lifecycle import events
from comfy_env.lifecycle.record import State
from comfy_env.pool.seat import Seat, has_process
from comfy_env.process.patience import Patience
from comfy_env.settings import Settings

log = logging.getLogger(__name__)


class Closable(Protocol):
    def close(self) -> None: ...


class Exit:
    """Closes a pool at interpreter exit; armed at the first spawn, so an unused pool leaves nothing to do."""

    def __init__(self, pool: Closable) -> None:
        self._pool = weakref.ref(pool)

    def arm(self) -> None:
        atexit.register(self._close)

    def disarm(self) -> None:
        atexit.unregister(self._close)

    def _close(self) -> None:
        pool = self._pool()
        if pool is not None:
            pool.close()


def shut_down(seats: Iterable[Seat], settings: Settings) -> None:
    """Ask every worker to end, all at once, and wait until each is gone or known to be wedged."""
    seats = list(seats)
    now = max((seat.clock() for seat in seats), default=0.0)
    for seat in seats:
        seat.post(events.ShutdownWanted(now + min(seat.env.limits.shutdown, settings.shutdown)))
    kills = 2 * settings.kill + 1
    patience = Patience(settings.shutdown + kills)
    for seat in seats:
        gone = seat.wait_for(lambda env: not has_process(env) or env.row.state is State.WEDGED, patience)
        if not gone:
            log.error("env %s: generation %s did not end in time", seat.key, seat.env.row.generation)
    _await_births(seats, Patience(patience.left() - kills))


def _await_births(seats: Iterable[Seat], patience: Patience) -> None:
    """Wait for births that were given up while a backend was at work on them: what it still starts is ended there."""
    for seat in seats:
        with seat.lock:
            performers = list(seat.performers.values())
        if not all([performer.finish(patience) for performer in performers]):
            log.warning("env %s: its backend is still at work; what it starts is ended as soon as it says so", seat.key)
