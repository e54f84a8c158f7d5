"""The limits, checked at a tick only. Time is lived time, so a machine that slept has exceeded none.

`due` and the handlers use the same sums, so a tick that is due always has something to do.
"""

from __future__ import annotations

from comfy_env.lifecycle import idle
from comfy_env.lifecycle.crashes import unparked
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.endings import CLOSED, condemn, execute, kill_again, rest, retire, strike, wedge
from comfy_env.lifecycle.events import Tick
from comfy_env.lifecycle.record import Activity, Closing, Env, State, Step, with_parts
from comfy_env.settings import Settings


def spawning(env: Env, event: Tick, now: float) -> Step:
    """Give up a spawn that takes too long; there may be no process yet to show a stack."""
    if not _passed(env.row.due, now):
        return env, ()
    why = Outcome(Kind.SPAWN_FAILED, f"the backend's spawn took longer than {env.limits.spawn:g} s", hint=_knob("spawn"))
    return retire(env, now, Reason.SPAWN_LATE, why)


def joining(env: Env, event: Tick, now: float) -> Step:
    """End a worker that was silent for the birth limit."""
    why = f"the worker showed no sign of life for {env.limits.birth:g} s while it was being born"
    verdict = Outcome(Kind.BIRTH_SILENT, why, hint=_knob("birth"))
    return condemn(env, now, Reason.BIRTH_SILENT, verdict) if _passed(env.row.due, now) else (env, ())


def proving(env: Env, event: Tick, now: float) -> Step:
    """End a worker whose canary did not come back in time."""
    why = f"the worker is refused: the canary took longer than {env.limits.verify:g} s"
    verdict = Outcome(Kind.REFUSED, why, hint=_knob("verify"))
    return condemn(env, now, Reason.VERIFY_LATE, verdict) if _passed(env.row.due, now) else (env, ())


def pinging(env: Env, event: Tick, now: float) -> Step:
    """End a worker that does not answer."""
    return condemn(env, now, Reason.PING_FAILED) if _passed(env.row.due, now) else (env, ())


def releasing(env: Env, event: Tick, now: float) -> Step:
    """End a worker that does not finish a release."""
    return condemn(env, now, Reason.RELEASE_LATE) if _passed(env.row.due, now) else (env, ())


def busy(env: Env, event: Tick, now: float) -> Step:
    """End a call that did not heed its interrupt, or was silent, or outlasted the shutdown."""
    activity = env.row.activity
    if _passed(_grace_over(env, activity), now):
        why = f"the call was interrupted and did not end within {env.limits.interrupt_grace:g} s; its worker was ended"
        return condemn(env, now, Reason.INTERRUPT_GRACE, Outcome(Kind.INTERRUPTED, why))
    if _passed(_silence_over(activity), now):
        why = f"no progress, callback or reply for {activity.silence:g} s"
        return condemn(env, now, Reason.CALL_SILENT, Outcome(Kind.SILENT, why, hint=_knob("call_silence", "; 0 is no limit")))
    return retire(env, now, Reason.SHUTDOWN, CLOSED) if _passed(env.row.due, now) else (env, ())


def closing(env: Env, event: Tick, now: float) -> Step:
    """Stop waiting: for a stack, for an exit, for a goodbye, or for a kill that nobody answered for."""
    row = env.row
    if not _passed(row.due, now):
        return env, ()
    if row.closing is Closing.STACK:
        return execute(env, now)
    if row.closing is Closing.EXIT:
        return strike(env, now)
    return retire(env, now, Reason.SHUTDOWN) if row.closing is Closing.GOODBYE else wedge(env, "the kill did not answer", now)


def wedged(env: Env, event: Tick, now: float) -> Step:
    """Try once more to end a worker that was seen to exit although its kill failed."""
    return kill_again(env, now, env.row.ending or Reason.ASKED) if _passed(env.row.due, now) else (env, ())


def ready(env: Env, event: Tick, now: float) -> Step:
    """Judge an idle worker."""
    return idle.judged(env, now)


def parked(env: Env, event: Tick, now: float) -> Step:
    """End the pause."""
    if not _passed(env.ledger.parked_until, now):
        return env, ()
    return rest(with_parts(env, unparked(env.ledger, forgiven=False), env.row), now)


def due(env: Env) -> float | None:
    """Return the lived time of the next limit a tick must check, None while none is foreseen."""
    row = env.row
    if row.state is State.READY:
        return idle.next_due(env)
    if row.state is State.PARKED:
        return env.ledger.parked_until
    if row.state is not State.BUSY:
        return row.due
    activity = row.activity
    if activity.interrupt_at is None and not activity.silence:   # as almost every call runs
        return row.due
    found = (_grace_over(env, activity), _silence_over(activity), row.due)
    return min((at for at in found if at is not None), default=None)


def _grace_over(env: Env, activity: Activity) -> float | None:
    return None if activity.interrupt_at is None else activity.interrupt_at + env.limits.interrupt_grace


def _silence_over(activity: Activity) -> float | None:
    return activity.since + activity.silence if activity.silence and not activity.asking else None


def _knob(name: str, more: str = "") -> str:
    """Return how a limit is raised: its variable, and its key in an environment's own table."""
    variable = Settings.__dataclass_fields__[name].metadata["variable"]
    return f"if it needs longer, raise {variable}, or {name} in the limits of the environment's table{more}"


def _passed(due: float | None, now: float) -> bool:
    return due is not None and now >= due
