"""A call's way: wanted, offered, accepted, alive, ended. A ticket is in one place and settled exactly once."""

from __future__ import annotations

from comfy_env.lifecycle import crashes, lane
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.effects import Effect, Ping, SendInterrupt, Settle
from comfy_env.lifecycle.endings import CLOSED, begin, wedged
from comfy_env.lifecycle.events import Accepted, CallAlive, CallEnded, CallWanted, CallWithdrawn, InterruptWanted, Ticket
from comfy_env.lifecycle.record import Activity, Env, Ledger, State, Step, changed, with_activity, with_ledger, with_row

WITHDRAWN = Outcome(Kind.WITHDRAWN, "its asker left before the call began")
INTERRUPTED = Outcome(Kind.INTERRUPTED, "the call was interrupted before it began")


def wanted_cold(env: Env, event: CallWanted, now: float) -> Step:
    """Start a worker for the call."""
    return begin(_queued(env, event), now)


def wanted_parked(env: Env, event: CallWanted, now: float) -> Step:
    """Refuse the call while the environment rests; start a worker once the pause is over."""
    until = env.ledger.parked_until
    if until is not None and now < until:
        return _refused(env, event, crashes.parked(env.ledger, now))
    return wanted_cold(with_ledger(env, **_pause_over(env.ledger)), event, now)


def _pause_over(ledger: Ledger) -> dict[str, object]:
    over = crashes.unparked(ledger, forgiven=False)
    return {"parked_until": over.parked_until, "park_reason": over.park_reason}


def wanted_gone(env: Env, event: CallWanted, now: float) -> Step:
    """Refuse the call: the pool is closed."""
    return _refused(env, event, CLOSED)


def wanted_wedged(env: Env, event: CallWanted, now: float) -> Step:
    """Refuse the call: no twin is started beside a worker that will not die."""
    return _refused(env, event, CLOSED if env.ledger.closed else wedged(env.row, env.killable))


def wanted_later(env: Env, event: CallWanted, now: float) -> Step:
    """Queue the call behind whatever the worker does now."""
    if env.ledger.closed:
        return _refused(env, event, CLOSED)
    if env.ledger.parked_until is not None:
        return _refused(env, event, crashes.parked(env.ledger, now))
    return _queued(env, event), ()


def wanted_ready(env: Env, event: CallWanted, now: float) -> Step:
    """Give the free lane to an asker that has looked at the worker, else offer it; after a long idle time ask for a pong first."""
    row = env.row
    if row.activity.offered is not None:
        return _queued(env, event), ()
    if row.stale is not None:
        return lane.free(_queued(env, event), now)
    if now - row.activity.since > env.limits.ping_idle:
        nxt = with_row(_queued(env, event), state=State.PINGING, due=now + env.limits.ping)
        return nxt, (Ping(row.generation),)
    if event.seen == row.generation:
        return lane.take(env, event.ticket, lane.limit(env, event.silence), now), ()
    return lane.offer(env, event.ticket, event.silence)


def accepted(env: Env, event: Accepted, now: float) -> Step:
    """Hand the lane to the asker that took the offer."""
    was = env.row.activity
    if was.offered != event.ticket:
        return env, ()
    return lane.take(env, event.ticket, was.silence, now), ()


def alive(env: Env, event: CallAlive, now: float) -> Step:
    """Start the silence limit anew, or stop counting while the worker waits for the host."""
    was = env.row.activity
    if was.running != event.ticket:
        return env, ()
    activity = Activity(None, was.running, now, was.silence, was.interrupt_at, was.calls, None, event.asking)
    return with_activity(env, State.BUSY, activity), ()


def ended(env: Env, event: CallEnded, now: float) -> Step:
    """Settle the call and use the lane it gave back."""
    was = env.row.activity
    if was.running != event.ticket:
        return env, ()
    env = with_activity(env, State.READY, Activity(None, None, now, 0.0, None, was.calls))
    most = env.limits.max_calls
    if most and was.calls >= most and env.row.stale is None:
        env = with_row(env, stale=Reason.WORN)
    nxt, effects = lane.free(env, now)
    return nxt, (Settle(event.generation, event.ticket, event.outcome), *effects)


def withdrawn(env: Env, event: CallWithdrawn, now: float) -> Step:
    """Forget a call that has not begun; a running one is the driver's to interrupt."""
    return _left(env, event.ticket, WITHDRAWN, now)


def interrupt_running(env: Env, event: InterruptWanted, now: float) -> Step:
    """Ask the running call to stop and start its grace."""
    was = env.row.activity
    ticket = was.running
    if ticket is None or event.ticket not in (None, ticket):
        return interrupt_waiting(env, event, now)
    asked = now if was.interrupt_at is None else was.interrupt_at
    nxt = with_row(env, activity=changed(was, interrupt_at=asked))
    return nxt, (SendInterrupt(env.row.generation, ticket),)


def interrupt_waiting(env: Env, event: InterruptWanted, now: float) -> Step:
    """Answer a call that has not begun; without a name, all of them, since none runs."""
    if event.ticket is not None:
        return _left(env, event.ticket, INTERRUPTED, now)
    effects: tuple[Effect, ...] = ()
    offered = env.row.activity.offered
    for ticket in (*(t for t, _ in env.ledger.waiting), *(() if offered is None else (offered,))):
        env, more = _left(env, ticket, INTERRUPTED, now)
        effects = (*effects, *more)
    return env, effects


def _left(env: Env, ticket: Ticket, outcome: Outcome, now: float) -> Step:
    """Settle a ticket that waits or was offered the lane, which goes to the next one; others are left alone."""
    settle = Settle(env.row.generation, ticket, outcome)
    was = env.row.activity
    if was.offered == ticket:
        env, effects = lane.free(with_activity(env, State.READY, changed(was, offered=None, silence=0.0)), now)
        return env, (settle, *effects)
    waiting = tuple(pair for pair in env.ledger.waiting if pair[0] != ticket)
    if len(waiting) == len(env.ledger.waiting):
        return env, ()
    return with_ledger(env, waiting=waiting), (settle,)


def _queued(env: Env, event: CallWanted) -> Env:
    return with_ledger(env, waiting=(*env.ledger.waiting, (event.ticket, event.silence)))


def _refused(env: Env, event: CallWanted, outcome: Outcome) -> Step:
    return env, (Settle(env.row.generation, event.ticket, outcome),)
