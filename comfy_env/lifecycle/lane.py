"""What happens when a worker's lane is free: one rule, asked at the end of whatever held it."""

from __future__ import annotations

from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.effects import Dispatch, Release
from comfy_env.lifecycle.endings import retire, say_goodbye
from comfy_env.lifecycle.events import Ticket
from comfy_env.lifecycle.record import Activity, Env, State, Step, WorkerRecord, changed, with_activity, with_ledger, with_row
from comfy_env.values import Want


def free(env: Env, now: float) -> Step:
    """Use a READY row's free lane: goodbye, replacement, release, the next call, or nothing."""
    row = env.row
    if env.ledger.closed:
        return say_goodbye(env)
    if replaceable(env, now):
        return retire(env, now, row.stale or Reason.STALE_SOURCE)
    if row.wanted is not None:
        return release(env, row.wanted, now)
    if env.ledger.waiting:
        (ticket, silence), *rest = env.ledger.waiting
        return offer(with_ledger(env, waiting=tuple(rest)), ticket, silence)
    return env, ()


def is_free(row: WorkerRecord) -> bool:
    """Tell whether nobody holds the lane or was offered it."""
    return row.state is State.READY and row.activity.offered is None


def replaceable(env: Env, now: float) -> bool:
    """Tell whether a stale worker may be replaced: the change has settled and nothing needs this very worker."""
    row = env.row
    return row.stale is not None and not row.stand_ins and not is_needed(env) and (row.settling is None or now >= row.settling)


def is_needed(env: Env) -> bool:
    """Tell whether a stale worker stays for now: its prompt runs, or it is only worn and something of it is still used."""
    row = env.row
    return in_running_prompt(env) or (row.stale is Reason.WORN and bool(row.held or row.host_tensors or row.host_references))


def in_running_prompt(env: Env) -> bool:
    """Tell whether the worker served the prompt that runs now: later nodes of it may want what it made."""
    return bool(env.ledger.prompt) and env.row.prompt == env.ledger.prompt


def take(env: Env, ticket: Ticket, silence: float, now: float) -> Env:
    """Return the env with its lane in the hands of a ticket's asker."""
    was = env.row.activity
    nxt = with_activity(env, State.BUSY, Activity(None, ticket, now, silence, None, was.calls + 1))
    return nxt if env.row.prompt == env.ledger.prompt else with_row(nxt, prompt=env.ledger.prompt)


def limit(env: Env, silence: float | None) -> float:
    """Return the limit of a call's silence, the environment's own where the call has none; 0 is no limit."""
    return env.limits.call_silence if silence is None else silence


def offer(env: Env, ticket: Ticket, silence: float | None) -> Step:
    """Offer the lane to a ticket's asker."""
    was = env.row.activity
    activity = Activity(ticket, None, was.since, limit(env, silence), None, was.calls, was.swept)
    return with_activity(env, State.READY, activity), (Dispatch(env.row.generation, ticket),)


def release(env: Env, want: Want, now: float) -> Step:
    """Ask the worker to give back what `want` says."""
    row = env.row
    activity = changed(row.activity, swept=now)
    nxt = with_row(env, state=State.RELEASING, due=now + env.limits.release, wanted=None, activity=activity)
    return nxt, (Release(row.generation, want),)


def ready(env: Env, now: float) -> Step:
    """Give the lane back after a command or a birth, and use it."""
    return free(with_row(env, state=State.READY, due=None), now)
