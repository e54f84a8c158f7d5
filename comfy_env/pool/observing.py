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
    from comfy_env.pool.seat import Seat, Turn

News = tuple[str, dict[str, Any]]
PATIENCE = 0.5
"""Seconds a caller waits at the most for an observer that another thread is telling something."""


def tell(house: House, seat: Seat) -> None:
    """Tell every observer what happened, in the order in which it did: one thread tells, the others leave it their news."""
    if not house.observers:
        seat.news.clear()
        return
    while seat.news and seat.telling.acquire(blocking=False):
        seat.told = False
        try:
            while seat.news:
                _announce(house, seat, seat.news.popleft())
        finally:
            seat.told = True
            seat.telling.release()


def catch_up(house: House, seat: Seat) -> None:
    """Wait until what happened so far is told, so that an observer knows of a call's end when its caller does; `PATIENCE` at the most."""
    if seat.told and not seat.news:
        return
    if seat.telling.acquire(timeout=PATIENCE):
        seat.telling.release()
    tell(house, seat)


def _announce(house: House, seat: Seat, turn: Turn) -> None:
    hears = house.observers.hears
    if _is_only_a_call(turn) and not (hears("call_started") or hears("call_ended")):
        return
    begun = _begun(turn)
    if begun is not None and hears("call_ended"):
        seat.begun[begun] = turn.at
    news = [one for one in (*_from_event(turn), *_from_effects(seat, turn)) if hears(one[0])]
    if news:
        record = picture(seat, seat.clock())
        for name, facts in news:
            house.observers.tell(name, record=record, **facts)


_CALLS = frozenset({events.CallWanted, events.Accepted, events.CallAlive, events.CallEnded})
_WITHIN = frozenset({effects.Dispatch, effects.Settle})


def _is_only_a_call(turn: Turn) -> bool:
    """Tell whether a step is one of almost all: nothing happened but that a call came, began or ended."""
    if type(turn.event) not in _CALLS or turn.before.ledger.parked_until is not turn.after.ledger.parked_until:
        return False
    for effect in turn.effects:
        if type(effect) not in _WITHIN:
            return False
    return True


def _from_event(turn: Turn) -> Iterator[News]:
    env, before, event = turn.after, turn.before, turn.event
    if env is before:
        return
    begun = _begun(turn)
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


def _begun(turn: Turn) -> int | None:
    """Return the ticket whose call began with this step."""
    running = turn.after.row.activity.running
    return None if running == turn.before.row.activity.running else running


def _judged(env: Env) -> Iterator[News]:
    if env.row.state in (State.CLOSING, State.GONE):
        yield "worker_refused", {"why": env.row.ending.value if env.row.ending else ""}
        return
    yield "worker_proved", {}
    if not env.row.gpu_ok:
        yield "worker_demoted", {"why": "its device or its GPU canary differs"}


def _from_effects(seat: Seat, turn: Turn) -> Iterator[News]:
    for effect in turn.effects:
        if isinstance(effect, effects.Settle) and effect.ticket == turn.before.row.activity.running:
            seconds = turn.at - seat.begun.pop(effect.ticket, turn.at)
            yield "call_ended", {"call": {"ticket": effect.ticket, "kind": effect.outcome.kind.name.lower(), "seconds": seconds}}
        if isinstance(effect, effects.Kill):
            yield "worker_retired", {"reason": effect.reason.value}
            if effect.reason is Reason.REAPED:
                yield "worker_reaped", {}
