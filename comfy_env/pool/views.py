"""Frozen pictures of a worker for callers, observers and the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comfy_env.pool.seat import Seat


@dataclass(frozen=True)
class Record:
    """A worker's row as it was when asked for. Times are seconds; `held` is bytes the worker is believed to hold.

    Unpacks as ``worker, generation``.
    """

    env: str
    generation: int
    state: str
    backend: str
    pid: int | None
    python: str
    born: float
    idle: float
    held: int
    calls: int
    gpu_zero_copy_ok: bool

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self.generation))


def picture(seat: Seat, now: float) -> Record:
    """Return the picture of a seat's present row."""
    row = seat.env.row
    worker = seat.workers.get(row.generation)
    busy = row.activity.running is not None
    return Record(
        env=seat.key,
        generation=row.generation,
        state=row.state.value,
        backend=seat.plan.backend,
        pid=row.pid,
        python=worker.python if worker else "",
        born=row.born,
        idle=0.0 if busy else max(0.0, now - row.activity.since),
        held=row.held,
        calls=row.activity.calls,
        gpu_zero_copy_ok=row.gpu_ok,
    )
