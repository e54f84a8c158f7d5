"""Tells observers what happened, as the lifecycle hooks name it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from comfy_env.lifecycle import effects, events
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.record import Env, State
from comfy_env.pool.views import picture

if TYPE_CHECKING:
    from comfy_env.pool.house import House
    from comfy_env.pool.seat import Seat

News = tuple[str, dict[str, Any]]


def announce(house: House, seat: Seat, before: Env, after: Env, event: events.Event, wanted: tuple[effects.Effect, ...]) -> None:
    """Tell every observer; an observer's exception never reaches the pool."""
    hears = house.observers.hears
    if _is_only_a_call(before, after, event, wanted) and not (hears("call_started") or hears("call_ended")):
        return
    begun = _begun(before, after)
    if begun is not None and hears("call_ended"):
        seat.begun[begun] = seat.clock()
    news = [one for one in (*_from_event(after, before, event), *_from_effects(seat, before, wanted)) if hears(one[0])]
    if news:
        record = picture(seat, seat.clock())
        for name, facts in news:
            house.observers.tell(name, record=record, **facts)


_CALLS = frozenset({events.CallWanted, events.Accepted, events.CallAlive, events.CallEnded})
_WITHIN = frozenset({effects.Dispatch, effects.Settle})


def _is_only_a_call(before: Env, after: Env, event: events.Event, wanted: tuple[effects.Effect, ...]) -> bool:
    """Tell whether a step is one of almost all: nothing happened but that a call came, began or ended."""
    if type(event) not in _CALLS or before.ledger.parked_until is not after.ledger.parked_until:
        return False
    for effect in wanted:
        if type(effect) not in _WITHIN:
            return False
    return True


def _from_event(env: Env, before: Env, event: events.Event) -> Iterator[News]:
    if env is before:
        return
    begun = _begun(before, env)
    if begun is not None:
        yield "call_started", {"call": {"ticket": begun}}
    if isinstance(event, events.Spawned):
        yield "worker_born", {}
    elif isinstance(event, events.Proved):
        yield from _judged(env)
    elif isinstance(event, events.Demoted):
        yield "worker_demoted", {"why": event.why}
    elif isinstance(event, events.Receipt):
        yield "worker_released", {"freed": event.freed, "held": event.held}
    elif isinstance(event, events.WontDie):
        yield "worker_wedged", {"note": event.note}
    if env.ledger.parked_until is not None and before.ledger.parked_until is None:
        yield "worker_parked", {"until": env.ledger.parked_until}


def _begun(before: Env, after: Env) -> int | None:
    """Return the ticket whose call began with this step."""
    running = after.row.activity.running
    return None if running == before.row.activity.running else running


def _judged(env: Env) -> Iterator[News]:
    if env.row.state in (State.CLOSING, State.GONE):
        yield "worker_refused", {"why": env.row.ending.value if env.row.ending else ""}
        return
    yield "worker_proved", {}
    if not env.row.gpu_ok:
        yield "worker_demoted", {"why": "its device or its GPU canary differs"}


def _from_effects(seat: Seat, before: Env, wanted: tuple[effects.Effect, ...]) -> Iterator[News]:
    for effect in wanted:
        if isinstance(effect, effects.Settle) and effect.ticket == before.row.activity.running:
            now = seat.clock()
            seconds = now - seat.begun.pop(effect.ticket, now)
            yield "call_ended", {"call": {"ticket": effect.ticket, "kind": effect.outcome.kind.name.lower(), "seconds": seconds}}
        if isinstance(effect, effects.Kill):
            yield "worker_retired", {"reason": effect.reason.value}
            if effect.reason is Reason.REAPED:
                yield "worker_reaped", {}
