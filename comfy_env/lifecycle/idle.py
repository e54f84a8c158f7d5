"""Judges an idle worker: asked to release, reaped, replaced when it is stale. The judgement and the deed are one step.

Because a judgement closes the row's lane in the same step, a call can never be lost to the reaper.
"""

from __future__ import annotations

from comfy_env.lifecycle import lane
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.effects import Effect, Note
from comfy_env.lifecycle.endings import retire
from comfy_env.lifecycle.record import Env, Step, with_row
from comfy_env.values import Want

IDLE = Want(None, "idle")
TIGHT = Want(None, "the card is tight")


def judged(env: Env, now: float) -> Step:
    """Replace, sweep or reap a worker whose lane is free, whichever is due first in this order."""
    if not lane.is_free(env.row):
        return env, ()
    said: tuple[Effect, ...] = ()
    if env.row.stale is not None and _due(stale_due(env), now):
        if not env.row.stand_ins:
            return retire(env, now, env.row.stale)
        env, said = _waits(env)
    env, effects = _swept_or_reaped(env, now)
    return env, (*said, *effects)


def _swept_or_reaped(env: Env, now: float) -> Step:
    if _due(sweep_due(env), now):
        return lane.release(env, IDLE, now)
    if _due(reap_due(env), now):
        return retire(env, now, Reason.REAPED)
    return env, ()


def _due(due: float | None, now: float) -> bool:
    return due is not None and now >= due


def next_due(env: Env) -> float | None:
    """Return the lived time at which the judge will have something to do, None while nothing is foreseen."""
    if not lane.is_free(env.row):
        return None
    dues = [due for due in (stale_due(env), sweep_due(env), reap_due(env)) if due is not None]
    return min(dues, default=None)


def sweep_due(env: Env) -> float | None:
    """Return when the worker is asked to release everything; again later only if it still holds something."""
    row, after = env.row, env.limits.idle_release
    since, swept = row.activity.since, row.activity.swept
    if swept is None:
        if is_pressed(env):
            return since
        return since + after if after else None
    return swept + after if after and row.held else None


def reap_due(env: Env) -> float | None:
    """Return when the worker is reaped, None while anything in it or in the host speaks against it."""
    row, after = env.row, env.limits.idle_reap
    needed = row.held or row.stand_ins or row.host_tensors or row.host_references or lane.in_running_prompt(env)
    return None if needed or not after else row.activity.since + after


def stale_due(env: Env) -> float | None:
    """Return when a stale worker is replaced, or says what it waits for."""
    row = env.row
    if row.stale is None or lane.is_needed(env) or (row.stand_ins and row.settling is None):
        return None
    return row.activity.since if row.settling is None else row.settling


def is_pressed(env: Env) -> bool:
    """Tell whether the worker holds memory on a tight card and its prompt is over."""
    return env.row.device in env.ledger.tight and env.row.held > 0 and not lane.in_running_prompt(env)


def _waits(env: Env) -> Step:
    """Say once what a stale worker waits for."""
    row = env.row
    why = row.stale.value if row.stale else "stale"
    line = f"{why}; it is replaced when the host lets go of its {row.stand_ins} stand-ins"
    return with_row(env, settling=None), (Note(row.generation, line),)
