"""How a worker's process ended, as far as its backend can tell.

A backend's `exit_status` and `exit_handle` are somebody else's code: what they raise is told once, by the backend's name,
and counts as "not known". Nobody here waits for longer than it says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from comfy_env.process.patience import Patience
from comfy_env.process.waits import readable
from comfy_env.values import ExitStatus

if TYPE_CHECKING:
    from comfy_env.pool.seat import Seat, Worker

EXIT_WAIT = 2.0
"""Seconds a lost lane waits for the exit status, so that a death is told with its real status."""
LOOK = 0.05
"""Seconds between two looks at a status that is late."""


def status_of(seat: Seat, worker: Worker) -> ExitStatus | None:
    """Return how a worker's process ended; None while it runs, or where that cannot be told."""
    if worker.process is None:
        return None
    try:
        found = worker.process.exit_status()
    except Exception as error:  # a backend's own code
        complain(seat, worker, f"exit_status raised {type(error).__name__}: {error}")
        return worker.exit_seen
    if found is not None and not isinstance(found, ExitStatus):
        complain(seat, worker, f"exit_status returned {type(found).__qualname__} {found!r}; an ExitStatus or None is wanted")
        return worker.exit_seen
    return found or worker.exit_seen


def handle_of(seat: Seat, worker: Worker) -> int | None:
    """Return the descriptor that becomes readable at the exit, None where there is none."""
    handle = None
    try:
        handle = worker.process.exit_handle() if worker.process is not None else None
    except Exception as error:  # a backend's own code
        complain(seat, worker, f"exit_handle raised {type(error).__name__}: {error}")
    if handle is None or type(handle) is int and handle >= 0:
        return handle
    complain(seat, worker, f"exit_handle returned {handle!r}; a descriptor or None is wanted")
    return None


def exit_of(seat: Seat, worker: Worker, enough: Callable[[], bool] = lambda: False) -> ExitStatus | None:
    """Return how a process whose lane was lost ended, since the lane often ends a moment earlier; None if it lives on.

    Waits no longer once there is ``enough``.
    """
    patience = Patience(EXIT_WAIT)
    known = status_of(seat, worker)
    while known is None and not enough() and (left := patience.left()):
        said = _wait(handle_of(seat, worker), min(LOOK, left))
        known = status_of(seat, worker)
        if said and known is None:
            _wait(None, min(LOOK, left))
    return known


def unknown(worker: Worker) -> ExitStatus:
    """Return what is told of a process that is over and whose backend does not say how it ended."""
    return ExitStatus(note=f"backend {worker.relay.name!r} does not say how it ended")


def complain(seat: Seat, worker: Worker, what: str) -> None:
    """Tell once, in the story and the log, that a backend breaks its word about a worker's exit."""
    if worker.complained:
        return
    worker.complained = True
    line = f"backend {worker.relay.name!r}: {what}"
    seat.remark(line)
    seat.log.warning("[%s #%s] %s", seat.key, worker.generation, line)


def _wait(handle: int | None, seconds: float) -> bool:
    """Wait until a handle is readable or the time is up; one that cannot be waited on counts as silent."""
    try:
        return readable([handle], seconds)
    except OSError:
        return readable([], seconds)
