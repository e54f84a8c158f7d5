"""What a caller may ask beside calls: a release, an interrupt."""

from __future__ import annotations

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.record import SERVING, Env, State
from comfy_env.pool.seat import Seat, Worker
from comfy_env.process.patience import Patience
from comfy_env.transport import commands
from comfy_env.values import Released, Want

ASKED = Want(why="asked")


def release(seat: Seat, want: Want | None = None) -> Released | None:
    """Have the worker release what is wanted, everything if nothing is said; None where no worker serves.

    A busy worker answers while it waits for its own callback; in pure compute it answers nothing, and the command gives
    up by name after its limit.
    """
    worker, state = seat.worker, seat.env.row.state
    if worker is None or worker.lanes is None or state not in SERVING:
        return None
    return _beside(seat, worker, want or ASKED) if state is State.BUSY else _at_rest(seat, worker, want or ASKED)


def _beside(seat: Seat, worker: Worker, want: Want) -> Released:
    """Ask on the lane that a call holds."""
    assert worker.process is not None and worker.lanes is not None
    try:
        released = commands.release(worker.process, worker.lanes, want, Patience(seat.env.limits.command_lock))
    except TimeoutError as late:
        raise _busy(seat, worker) from late
    seat.post(events.Receipt(worker.generation, released.freed, released.held))
    return released


def _at_rest(seat: Seat, worker: Worker, want: Want) -> Released | None:
    """Let the machine hold the lane for the release, and wait for its receipt; None if the worker ended instead."""

    def over(env: Env) -> bool:
        row = env.row
        ended = row.generation != worker.generation or row.state not in SERVING
        return ended or (row.wanted is None and row.state is not State.RELEASING)

    before = worker.receipts
    seat.post(events.ReleaseWanted(want))
    if not seat.wait_for(over, Patience(seat.env.limits.command_lock)):
        raise _busy(seat, worker)
    receipt = worker.receipt if worker.receipts > before else None
    if isinstance(receipt, errors.ComfyEnvError):
        raise receipt
    return receipt


def _busy(seat: Seat, worker: Worker) -> errors.LaneBusy:
    return errors.LaneBusy(
        f"the lane was not to be had for {seat.env.limits.command_lock:g} s: a call runs",
        env=seat.key,
        generation=worker.generation,
        pid=worker.process.pid if worker.process else None,
        hint="wait for its call to end, or interrupt it",
    )


def interrupt(seat: Seat) -> bool:
    """Ask the running call to stop, or those that wait where none runs yet; tell whether there was one.

    Each is asked for by its own number, so that a call which begins a moment later is never hit.
    """
    tickets = _in_question(seat.env)
    for ticket in tickets:
        seat.post(events.InterruptWanted(ticket))
    return bool(tickets)


def _in_question(env: Env) -> tuple[int, ...]:
    activity = env.row.activity
    if activity.running is not None:
        return (activity.running,)
    offered = () if activity.offered is None else (activity.offered,)
    return (*offered, *(ticket for ticket, _ in env.ledger.waiting))
