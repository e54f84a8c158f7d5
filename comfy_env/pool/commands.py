"""Commands a caller sends beside calls."""

from __future__ import annotations

import time

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.record import Env, State
from comfy_env.pool.seat import Seat
from comfy_env.transport import commands
from comfy_env.values import Released, Want


def release(seat: Seat) -> Released | None:
    """Have the worker release everything.

    A busy worker answers while it waits for its own callback; in pure compute it answers nothing, and the command gives
    up by name after its limit.
    """
    worker = seat.worker
    if worker is None or worker.lanes is None or worker.process is None:
        return None
    until = time.monotonic() + seat.env.limits.command_lock
    before = seat.env.row
    if before.state is State.READY:
        return _at_rest(seat, until)
    released = commands.release(worker.process, worker.lanes, Want(why="asked"), until)
    seat.post(events.Receipt(before.generation, released.freed, released.held))
    return released


def _at_rest(seat: Seat, until: float) -> Released | None:
    """Let the machine hold the lane for the release; its receipt is read from the row."""
    row, worker = seat.env.row, seat.worker

    def done_with(env: Env) -> bool:
        return env.row.generation != row.generation or (env.row.wanted is None and env.row.state is not State.RELEASING)

    seat.post(events.ReleaseWanted(Want(why="asked")))
    done = seat.wait_for(done_with, until - time.monotonic())
    if not done:
        raise errors.LaneBusy(
            f"the lane was not to be had for {seat.env.limits.command_lock:g} s",
            env=seat.key,
            generation=row.generation,
            pid=row.pid,
            hint="wait for its call to end, or interrupt it",
        )
    return worker.released if worker else None
