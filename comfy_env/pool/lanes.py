"""One call on the lane, run by the thread that asked for it, and the commands beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.calls import WITHDRAWN
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.record import Env
from comfy_env.pool.endings import news_of
from comfy_env.pool.exits import status_of
from comfy_env.pool.failures import failure, node_raised, outcome_of
from comfy_env.pool.seat import Seat, Worker
from comfy_env.pool.tickets import Offer, Settled, Ticket
from comfy_env.process.patience import Patience
from comfy_env.transport.answers import Answer
from comfy_env.values import Progress

_RETURNED = Outcome(Kind.RETURNED)
_REFUSALS = {"encode": Kind.ENCODE_REFUSED, "reference": Kind.REFERENCE_LOST}
_OWN_ERRORS = (Kind.RAISED, Kind.ENCODE_REFUSED, Kind.DECODE_REFUSED, Kind.REFERENCE_LOST)
_serving = threading.local()


def ask(seat: Seat, ticket: Ticket, message: dict[str, Any], patience: Patience | None) -> Any:
    """Ask for the lane and wait for it, run the call on it, return its value or raise its failure."""
    if ticket.left:  # before anything was asked for: no worker is born for it
        raise failure(seat, 0, WITHDRAWN)
    generation = _want(seat, ticket)
    if ticket.left:
        seat.post(events.CallWithdrawn(ticket.number))
        seat.post(events.InterruptWanted(ticket.number))
    if not generation:
        word = _wait(seat, ticket, patience)
        if isinstance(word, Settled):
            raise failure(seat, word.generation, _as_its_caller_knows(word.outcome, ticket))
        generation = word.generation
    worker = seat.workers.get(generation)
    if worker is not None:  # else it died long ago and so did its heir: how this call ended is in the mail
        _serve(seat, worker, ticket, message)
    return _conclude(seat, ticket)


def _want(seat: Seat, ticket: Ticket) -> int:
    """Tell the machine of the call; return the generation whose lane was free for it, 0 where it is to wait for one."""
    number, worker = ticket.number, seat.worker
    seen = worker.generation if worker is not None and _lives(seat, worker) else 0
    seat.post(events.CallWanted(number, ticket.options.silence, seen))
    return seen if seat.env.row.activity.running == number else 0   # a call that began and is over by now has its end in the mail


def _lives(seat: Seat, worker: Worker) -> bool:
    """Tell whether a worker's process runs; an end that nobody noticed yet is told to the machine."""
    ended = status_of(seat, worker)
    if ended is not None:
        seat.post(events.ProcessExited(worker.generation, ended))
    return ended is None


def _serve(seat: Seat, worker: Worker, ticket: Ticket, message: dict[str, Any]) -> None:
    """Run the call, and let its own callbacks know whose lane this thread holds."""
    try:
        _served().append((seat, ticket))
        _run(seat, worker, ticket, message)
    finally:
        _no_longer_served(ticket)


def refuse_reentry(seat: Seat) -> None:
    """Refuse a call from inside a callback of the same environment before anything is asked for it."""
    for other, ticket in _served():
        if other is seat and not ticket.settled:
            wrong = "a call to an environment from inside its own callback would wait for itself"
            raise errors.CallFailed(wrong, env=seat.key, hint="call another environment")


def abandon(seat: Seat, ticket: Ticket) -> None:
    """Give up the ticket of an asker that was torn out at whatever moment (Ctrl-C): nobody else waits for it from here on."""
    number = ticket.number
    _no_longer_served(ticket)
    seat.post(events.CallWithdrawn(number))
    if not seat.post_if(lambda env: env.row.activity.running == number, events.KillWanted(Reason.ASKED)):
        seat.tickets.pop(number, None)


def _as_its_caller_knows(outcome: Outcome, ticket: Ticket) -> Outcome:
    """Tell a caller that left because its patience was over how much of that it had."""
    if outcome.kind is not Kind.WITHDRAWN or ticket.options.wait is None:
        return outcome
    return replace(outcome, message=f"the call did not begin within {ticket.options.wait:g} s, the time its caller gave it")


def _wait(seat: Seat, ticket: Ticket, patience: Patience | None) -> Offer | Settled:
    """Wait until the lane was offered and accepted, or the ticket settled."""
    while True:
        try:
            word = ticket.next_word(patience)
        except BaseException:
            seat.post(events.CallWithdrawn(ticket.number))
            raise
        if word is None:
            patience = None
            seat.post(events.CallWithdrawn(ticket.number))
        elif isinstance(word, Settled) or _accept(seat, ticket, word.generation):
            return word


def _accept(seat: Seat, ticket: Ticket, generation: int) -> bool:
    number = ticket.number

    def offered(env: Env) -> bool:
        return env.row.generation == generation and env.row.activity.offered == number

    worker = seat.workers.get(generation)
    if worker is not None and not _lives(seat, worker):
        return False   # the next generation offers itself
    return seat.post_if(offered, events.Accepted(generation, number))


def _run(seat: Seat, worker: Worker, ticket: Ticket, message: dict[str, Any]) -> None:
    """Have the call on the lane and post how it ended."""
    number, generation = ticket.number, worker.generation
    try:
        answer = _attended(seat, worker, ticket, message)
    except BaseException as error:  # whose it is, and so whether it is raised on, is told apart here
        if error is ticket.stopped or not isinstance(error, errors.ComfyEnvError):
            _broken_off(seat, worker, ticket, error)
            raise
        _failed(seat, worker, ticket, error)
    else:
        seat.post(events.CallEnded(generation, number, _outcome_of_answer(seat, worker, ticket, answer)))


def _failed(seat: Seat, worker: Worker, ticket: Ticket, error: errors.ComfyEnvError) -> None:
    """Tell the machine of an error of the conversation itself; no caller's code has raised it."""
    if not isinstance(error, errors.LaneLost | errors.FrameDamaged):
        ticket.error = error
        seat.post(events.CallEnded(worker.generation, ticket.number, outcome_of(error)))
    elif not ticket.settled:  # else the machine took the lane away, and knows why
        seat.post(news_of(seat, worker, error, enough=lambda: ticket.settled))


def _attended(seat: Seat, worker: Worker, ticket: Ticket, message: dict[str, Any]) -> Answer:
    try:
        return _converse(seat, worker, ticket, message)
    finally:
        demotions = worker.session.devices.demotions if worker.session is not None else ()
        while demotions:
            seat.post(events.Demoted(worker.generation, demotions.popleft()))


def _converse(seat: Seat, worker: Worker, ticket: Ticket, message: dict[str, Any]) -> Answer:
    assert worker.session is not None
    alive = events.CallAlive(worker.generation, ticket.number)
    limited = bool(seat.env.row.activity.silence)
    if limited:  # until its arguments leave, it is the host that is silent
        seat.post(events.CallAlive(worker.generation, ticket.number, asking=True))
    ticket.reading = True
    try:
        return worker.session.call(
            message,
            request=ticket.number,
            generation=worker.generation,
            alive=lambda: seat.post(alive),
            moved=(lambda: seat.post(alive)) if limited else None,
            on_progress=(lambda progress: _report(seat, ticket, progress)) if ticket.options.on_progress else None,
            callbacks={name: _told(seat, ticket, alive, function) for name, function in ticket.options.callbacks.items()},
        )
    finally:
        ticket.reading = False


def _told(seat: Seat, ticket: Ticket, alive: events.CallAlive, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback during which the call's silence is not counted: its worker waits for this very function."""

    def serve(*args: Any, **kwargs: Any) -> Any:
        seat.post(events.CallAlive(alive.generation, alive.ticket, asking=True))
        try:
            return function(*args, **kwargs)
        except Exception as error:
            ticket.called_back = error
            raise
        finally:
            seat.post(alive)

    return serve


def _report(seat: Seat, ticket: Ticket, progress: Progress) -> None:
    """Tell the caller's hook; what it raises interrupts the call, with the interrupt's grace."""
    try:
        ticket.report(progress)
    except BaseException:
        seat.post(events.InterruptWanted(ticket.number))
        raise


def _broken_off(seat: Seat, worker: Worker, ticket: Ticket, error: BaseException) -> None:
    """Tell the machine that the asker leaves with an error of its own, and wait until the call is settled."""
    if error is ticket.stopped:
        why = Outcome(Kind.INTERRUPTED, f"the call was stopped by its own progress hook ({type(error).__name__})")
        seat.post(events.CallEnded(worker.generation, ticket.number, why))
    else:
        seat.post(events.KillWanted(Reason.ASKED))  # its asker left in the middle of the call: the worker's own fault it is not
    ticket.settlement()


def _outcome_of_answer(seat: Seat, worker: Worker, ticket: Ticket, answer: Answer) -> Outcome:
    """Return how an answer ends its call; one that cannot be told ends it all the same."""
    generation = worker.generation
    if answer.held is not None and answer.held > seat.env.row.held:
        seat.post(events.HeldGrew(generation, answer.held))
    if answer.imported and seat.keeper is not None:
        seat.keeper.saw(answer.imported)
    if answer.kind.name == "REPLY":
        ticket.value = answer.value
        return _RETURNED
    if answer.kind.name == "INTERRUPTED":
        return Outcome(Kind.INTERRUPTED, "the call was interrupted")
    if answer.error is None:
        return Outcome(_REFUSALS.get(answer.refusal, Kind.DECODE_REFUSED), answer.text)
    try:
        ticket.error = node_raised(seat, generation, answer.error)
    except Exception as error:  # an exception class of the host's own that cannot be rebuilt
        return Outcome(Kind.RAISED, f"{answer.error.type_name}: {answer.error.text} (not rebuilt here: {error!r})")
    if ticket.called_back is not None and answer.error.type_name.endswith(".callback.CallbackFailed"):
        ticket.error.__cause__ = ticket.called_back  # the caller's own exception, with its own traceback
    return Outcome(Kind.RAISED, ticket.error.message)


def _conclude(seat: Seat, ticket: Ticket) -> Any:
    settled = ticket.settlement()
    if ticket.stopped is not None:
        raise ticket.stopped  # its own hook wanted the end, whichever way that came
    if settled.outcome.kind is Kind.RETURNED:
        return ticket.value
    if ticket.error is not None and settled.outcome.kind in _OWN_ERRORS:
        raise ticket.error
    raise failure(seat, settled.generation, settled.outcome)


def _served() -> list[tuple[Seat, Ticket]]:
    """Return the calls whose lanes this thread holds, each inside a callback of the one before it."""
    if not hasattr(_serving, "calls"):
        _serving.calls = []
    return _serving.calls


def _no_longer_served(ticket: Ticket) -> None:
    _serving.calls = [(seat, other) for seat, other in _served() if other is not ticket and not other.settled]
