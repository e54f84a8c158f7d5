"""Turns outcomes into exceptions and exceptions into outcomes.

A fresh exception is built for each asker: two threads never raise the same object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfy_env import errors
from comfy_env.lifecycle import brief
from comfy_env.lifecycle.deaths import Kind, Outcome
from comfy_env.pool.seat import LAST_WORDS
from comfy_env.process import shortage
from comfy_env.transport import boot
from comfy_env.transport.answers import RemoteError

if TYPE_CHECKING:
    from comfy_env.pool.seat import Seat, Worker

_KINDS = {kind.value: kind for kind in Kind if kind is not Kind.RETURNED}
_DEATHS = (Kind.CRASHED, Kind.DIED_BEFORE_JOINING)
_RENAME = "name another interpreter in the plan"
NEXT = {
    Kind.CRASHED: "the next call gets a new worker; if it crashes again, show these lines to the author of the pack",
    Kind.DIED_BEFORE_JOINING: "run its interpreter by hand to see why it ends, or build the environment again",
    Kind.REFUSED: "nothing was run in it; if it is refused again, show these lines to the author of its backend",
    Kind.WITHDRAWN: "another call has the lane: wait longer, or interrupt that one",
    Kind.CLOSED: "make another WorkerPool",
}
"""What to do next where nothing better is known."""



def outcome_of(error: BaseException, default: Kind = Kind.BACKEND_BROKE) -> Outcome:
    """Return the outcome that tells an error of a birth or a call."""
    if not isinstance(error, errors.ComfyEnvError):
        return Outcome(default, f"{type(error).__name__}: {error}")
    for cls in type(error).__mro__:
        if cls.__name__ in _KINDS:
            return Outcome(_KINDS[cls.__name__], error.message, hint=error.hint, stack=error.stack)
    return Outcome(default, error.message, hint=error.hint, stack=error.stack)


def failure(seat: Seat, generation: int, outcome: Outcome) -> errors.ComfyEnvError:
    """Return the exception an asker gets for an outcome, with the worker's last words."""
    worker = seat.workers.get(generation)
    row = seat.env.row
    if worker and outcome.status:
        worker.drain(LAST_WORDS)
    old = _too_old(worker, outcome)
    return outcome.kind.error(
        old or outcome.message,
        env=seat.key,
        generation=generation,
        pid=worker.process.pid if worker and worker.process else row.pid,
        status=str(outcome.status) if outcome.status else "",
        output=worker.output.tail() if worker else (),
        stack=outcome.stack,
        story=brief.tail(seat.env.ledger.story, seat.clock()),
        hint=outcome.hint or (old and _RENAME) or _memory_hint(worker, outcome) or NEXT.get(outcome.kind, ""),
    )


def _too_old(worker: Worker | None, outcome: Outcome) -> str:
    if worker is None or outcome.kind is not Kind.DIED_BEFORE_JOINING or outcome.status is None:
        return ""
    return boot.refusal(outcome.status.code, worker.interpreter, worker.output.tail())


def _memory_hint(worker: Worker | None, outcome: Outcome) -> str:
    if worker is None or outcome.kind not in _DEATHS:
        return ""
    return shortage.hint(outcome.status, getattr(worker.process, "kills_before", 0))


def node_raised(seat: Seat, generation: int, remote: RemoteError) -> errors.NodeRaised:
    """Return the exception for a function that raised in the worker, the original as its cause where it is known here."""
    worker = seat.workers.get(generation)
    error = errors.NodeRaised(
        f"{remote.type_name}: {remote.text}",
        env=seat.key,
        generation=generation,
        pid=worker.process.pid if worker and worker.process else None,
    )
    error.remote_type = remote.type_name
    error.remote_traceback = remote.traceback
    error.__cause__ = remote.exception()
    return error
