"""The restart machine: one table, from an event and the phase to the handler of that step. Pure.

A cell that is missing means that the event changes nothing in that phase and asks for nothing; so does news of another
attempt. Every handler is a pure function (restart, event, now) -> (restart, effects).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from comfy_env.orchestrator import back, reasons, way
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import UNDER_WAY, Phase, Restart, Step

Handler = Callable[[Restart, Any, float], Step]
Table = Mapping[type[e.Event], Mapping[Phase, Handler]]

P = Phase
OPEN = (P.IDLE, P.CHECKING, P.STAGED, P.ARMED, P.COOLDOWN)
ALONE = (*OPEN, P.GATE_OPEN)


def _in(phases: Iterable[Phase], handler: Handler) -> dict[Phase, Handler]:
    return dict.fromkeys(phases, handler)


TABLE: Table = {
    # reasons to restart
    e.CheckDue: {P.IDLE: reasons.check_idle, **_in((P.STAGED, P.ARMED, P.COOLDOWN), reasons.check_beside)},
    e.CheckEmpty: {P.CHECKING: reasons.nothing_found},
    e.Found: {**_in(OPEN, reasons.found), **_in(UNDER_WAY, reasons.found_meanwhile)},
    e.Vanished: {**_in((P.STAGED, P.ARMED), reasons.vanished), **_in(UNDER_WAY, reasons.vanished_meanwhile)},
    e.Asked: _in(OPEN, reasons.asked),
    # the way
    e.GateOpened: {P.ARMED: way.gate_opened},
    e.Rechecked: {P.GATE_OPEN: way.rechecked},
    e.Applied: {P.APPLYING: way.applied},
    e.ApplyFailed: {P.APPLYING: back.failed},
    e.Spawned: {P.FENCED: way.spawned},
    e.SpawnFailed: {P.FENCED: back.failed},
    e.Proved: {P.FENCED: way.proved},
    e.ProofFailed: {P.FENCED: back.failed},
    e.Hello: {P.SPAWNED: way.hello},
    e.Listening: {P.SPAWNED: way.listening},
    e.PoolClosed: {P.PROVEN: way.pool_closed},
    e.Yielded: {P.PROVEN: way.yielded},
    e.YieldFailed: {P.PROVEN: back.failed},
    e.Serving: {P.COMMITTED: way.serving},
    e.Confirmed: {P.CONFIRMING: way.confirmed},
    e.Goodbye: {P.CONFIRMING: way.goodbye, **_in((P.SPAWNED, P.PROVEN, P.COMMITTED), back.left_early)},
    e.Ended: _in((P.SPAWNED, P.PROVEN, P.COMMITTED, P.CONFIRMING), back.failed),
    e.Drained: {P.CONFIRMING: way.drained_early, P.DRAINING: way.drained},
    # the way back
    e.Killed: {P.ROLLBACK: back.killed},
    e.TakenBack: {P.ROLLBACK: back.taken_back},
    e.TakeBackFailed: {P.ROLLBACK: back.lost},
    e.PutBack: {P.ROLLBACK: back.put_back},
    # always
    e.StopWanted: {
        **_in(ALONE, way.stop_now),
        **_in((P.APPLYING, P.FENCED, P.SPAWNED, P.PROVEN), back.stop_under_way),
        **_in((P.COMMITTED, P.CONFIRMING), way.stop_passed_on),
        P.ROLLBACK: back.stop_after,
    },
    e.Tick: {
        P.CHECKING: reasons.nothing_found,
        P.STAGED: reasons.wait_over,
        P.GATE_OPEN: way.recheck_late,
        **_in((P.APPLYING, P.FENCED, P.SPAWNED, P.PROVEN, P.COMMITTED, P.CONFIRMING), back.late),
        P.DRAINING: way.drained,
        P.ROLLBACK: back.step_late,
        P.COOLDOWN: reasons.cooled_down,
    },
}


def step(restart: Restart, event: e.Event, now: float, table: Table = TABLE) -> Step:
    """Return the restart after an event, and what the driver must do. `now` is lived time in seconds."""
    handler = table.get(type(event), {}).get(restart.phase)
    if handler is None or (isinstance(event, e.News) and event.attempt != restart.attempt):
        return restart, ()
    if isinstance(event, e.Tick) and (restart.due is None or now < restart.due):
        return restart, ()
    return handler(restart, event, now)


def next_due(restart: Restart) -> float | None:
    """Return the lived time at which a Tick will have something to do, None while nothing is foreseen."""
    return restart.due if restart.phase in TABLE[e.Tick] else None
