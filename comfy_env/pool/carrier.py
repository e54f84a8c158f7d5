"""Carries effects to where they are carried out: a performer, a port, a ticket, the log.

One table says which effect goes where; a new effect without a row is an error at import.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from comfy_env import errors
from comfy_env.lifecycle import effects, events
from comfy_env.lifecycle.effects import Effect
from comfy_env.lifecycle.machine import next_due
from comfy_env.lifecycle.record import SERVING
from comfy_env.pool import births, endings, observing
from comfy_env.pool.house import House
from comfy_env.pool.seat import Seat, Turn, Worker
from comfy_env.transport import commands
from comfy_env.values import Released

log = logging.getLogger(__name__)
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Carrier:
    """``changed`` is told about each seat whose life changed, for the journal."""

    def __init__(self, house: House, changed: Callable[[Seat], None]) -> None:
        self._house = house
        self._changed = changed
        self._ways: dict[type[Effect], Callable[[Seat, Any], None]] = {
            effects.Spawn: self._spawn,
            effects.OpenLanes: self._open_lanes,
            effects.Prove: self._prove,
            effects.Dispatch: self._dispatch,
            effects.Ping: self._ping,
            effects.Release: self._release,
            effects.SendInterrupt: self._interrupt,
            effects.Goodbye: self._goodbye,
            effects.AskStack: self._ask_stack,
            effects.Kill: self._kill,
            effects.DropZygote: self._drop_zygote,
            effects.Quarantine: self._quarantine,
            effects.DropQuarantine: self._drop_quarantine,
            effects.Settle: self._settle,
            effects.Note: self._note,
        }

    def __call__(self, seat: Seat, turn: Turn) -> None:
        for effect in turn.effects[turn.done:]:
            self._ways[type(effect)](seat, effect)
            turn.done += 1
        before, after = turn.before, turn.after
        was, state = before.row.state, after.row.state
        if was is not state or isinstance(turn.event, events.InterruptWanted) or before.row.activity.asking:
            due = next_due(after)
            if due is not None:
                self._house.watcher.wake_by(due)
        if was is not state and not (was in SERVING and state in SERVING):
            self._changed(seat)
        observing.tell(self._house, seat)

    def _spawn(self, seat: Seat, effect: effects.Spawn) -> None:
        seat.performer(effect.generation).submit(lambda: births.spawn(self._house, seat, effect.generation))

    def _open_lanes(self, seat: Seat, effect: effects.OpenLanes) -> None:
        seat.performer(effect.generation).submit(lambda: births.open_lanes(seat, effect.generation))

    def _prove(self, seat: Seat, effect: effects.Prove) -> None:
        seat.performer(effect.generation).submit(lambda: births.prove(seat, effect.generation))

    def _dispatch(self, seat: Seat, effect: effects.Dispatch) -> None:
        ticket = seat.tickets.get(effect.ticket)
        if ticket is not None:
            ticket.offer(effect.generation)

    def _settle(self, seat: Seat, effect: effects.Settle) -> None:
        ticket = seat.tickets.get(effect.ticket)
        if ticket is None:
            log.debug("ticket %s of env %s was settled before", effect.ticket, seat.key)
            return
        ticket.settle(effect.generation, effect.outcome)
        worker = seat.workers.get(effect.generation)
        if ticket.reading and worker is not None and worker.session is not None:
            worker.session.close()  # its asker still waits on the lane; the settlement is the answer
        seat.tickets.pop(effect.ticket, None)

    def _ping(self, seat: Seat, effect: effects.Ping) -> None:
        seat.performer(effect.generation).submit(lambda: ping(seat, effect.generation))

    def _release(self, seat: Seat, effect: effects.Release) -> None:
        seat.performer(effect.generation).submit(lambda: release(seat, effect))

    def _interrupt(self, seat: Seat, effect: effects.SendInterrupt) -> None:
        seat.performer(effect.generation).urgent(lambda: interrupt(seat, effect), "interrupt")

    def _goodbye(self, seat: Seat, effect: effects.Goodbye) -> None:
        seat.performer(effect.generation).urgent(lambda: goodbye(seat, effect.generation), "goodbye")

    def _ask_stack(self, seat: Seat, effect: effects.AskStack) -> None:
        seat.performer(effect.generation).urgent(lambda: endings.ask_stack(seat, effect.generation), "stack")

    def _kill(self, seat: Seat, effect: effects.Kill) -> None:
        job = lambda: endings.kill(self._house, seat, effect.generation, effect.reason, effect.replaced)  # noqa: E731
        seat.performer(effect.generation).urgent(job, "kill")

    def _drop_zygote(self, seat: Seat, effect: effects.DropZygote) -> None:
        if seat.keeper is not None:
            seat.performer(effect.generation).urgent(seat.keeper.drop, "zygote")

    def _quarantine(self, seat: Seat, effect: effects.Quarantine) -> None:
        _told(lambda: self._house.shelf.quarantine(seat.key, effect.generation), "the stand-in shelf")

    def _drop_quarantine(self, seat: Seat, effect: effects.DropQuarantine) -> None:
        _told(lambda: self._house.shelf.drop_quarantine(seat.key), "the stand-in shelf")

    def _note(self, seat: Seat, effect: effects.Note) -> None:
        seat.log.log(_LEVELS.get(effect.level, logging.INFO), "[%s #%s] %s", seat.key, effect.generation, effect.line)
        self._changed(seat)


def _told(tell: Callable[[], None], what: str) -> None:
    try:
        tell()
    except Exception:  # the host's own code: what it raises must not keep the next effect, a kill perhaps, from being carried out
        log.exception("%s raised", what)


def ping(seat: Seat, generation: int) -> None:
    """Ask for a pong on the main lane; answers Ponged or PingFailed."""
    worker = seat.workers.get(generation)
    try:
        if worker is None or worker.process is None or worker.lanes is None:
            raise errors.LaneLost("the lane is gone")
        commands.ping(worker.process, worker.lanes)  # its limit is the machine's, which ends the worker and with it the lane
    except (errors.ComfyEnvError, OSError) as error:
        seat.post(events.PingFailed(generation, str(error)))
    else:
        seat.post(events.Ponged(generation))


def release(seat: Seat, effect: effects.Release) -> None:
    """Ask the worker to give back; answers Receipt or ReleaseFailed."""
    worker = seat.workers.get(effect.generation)
    try:
        if worker is None or worker.process is None or worker.lanes is None:
            raise errors.LaneLost("the lane is gone")
        released = worker.relay.release(worker.process, worker.lanes, effect.want)
    except Exception as error:  # whatever a backend raises fails the release, by name
        if worker is not None:
            _note(worker, error if isinstance(error, errors.ComfyEnvError) else errors.BackendError(f"release raised {error!r}"))
        seat.post(_unreleased(seat, effect.generation, worker, error))
    else:
        _note(worker, released)
        seat.post(events.Receipt(effect.generation, released.freed, released.held))


def _note(worker: Worker, receipt: Released | errors.ComfyEnvError) -> None:
    """Keep how a release ended for everybody who waits for it; the count tells them that it came."""
    worker.receipt = receipt
    worker.receipts += 1


def _unreleased(seat: Seat, generation: int, worker: Worker | None, error: Exception) -> events.Event:
    if worker is not None and isinstance(error, errors.LaneLost | errors.FrameDamaged):
        return endings.news_of(seat, worker, error)   # the next call must not meet what is dead
    return events.ReleaseFailed(generation, f"{type(error).__name__}: {error}")


def interrupt(seat: Seat, effect: effects.SendInterrupt) -> None:
    """Set the interrupt flag of one call; if it cannot be set, the grace limit ends the call."""
    worker = seat.workers.get(effect.generation)
    if worker is None or worker.session is None:
        return
    try:
        worker.session.interrupt(effect.ticket)
    except (errors.ComfyEnvError, OSError) as error:
        seat.log.warning("the interrupt could not be sent: %s", error)


def goodbye(seat: Seat, generation: int) -> None:
    """Send the shutdown frame; a worker that cannot hear it is killed at the deadline."""
    worker = seat.workers.get(generation)
    if worker is None or worker.session is None:
        return
    try:
        worker.session.goodbye()
    except (errors.ComfyEnvError, OSError) as error:
        seat.log.debug("the goodbye could not be sent: %s", error)
