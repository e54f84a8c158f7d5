"""A crash that a worker's faulthandler tells of, before the process that crashed has given back its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfy_env.lifecycle import events
from comfy_env.pool.exits import status_of
from comfy_env.process import procs
from comfy_env.process.crashes import CrashPipe

if TYPE_CHECKING:
    from comfy_env.pool.seat import Seat, Worker


def attend(seat: Seat, worker: Worker) -> None:
    """Take a started worker's crash pipe into the hand; one without a process here has none."""
    pid = worker.process.pid if worker.process is not None else None
    pipe = worker.endpoint.take_crashes() if pid is not None else None
    if pid is not None and pipe is not None:
        worker.crashes = CrashPipe(pipe, worker.output, lambda: procs.doomed(pid) or status_of(seat, worker) is not None)


def told_by(worker: Worker) -> events.CrashTold | None:
    """Return the news of a crash, if the worker told of one."""
    crash = worker.crashes.look() if worker.crashes is not None else None
    return None if crash is None else events.CrashTold(worker.generation, crash.status, crash.stack)


def post_told(seat: Seat, worker: Worker) -> bool:
    """Tell the machine of a crash, if the worker told of one; news that came before changes nothing."""
    news = told_by(worker)
    if news is not None:
        seat.post(news)
    return news is not None
