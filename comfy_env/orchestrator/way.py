"""Handlers: the way from an open gate to a confirmed successor. Pure."""

from __future__ import annotations

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Mode, Phase, Restart, Step, changed
from comfy_env.orchestrator.target import Kind, Target

RESTART_ME = 75
RECHECK = 5.0


def _target(restart: Restart) -> Target:
    assert restart.target is not None
    return restart.target


def _within_fence(restart: Restart, now: float, limit: float) -> float:
    return min(now + limit, restart.fence_due if restart.fence_due is not None else now + limit)


def gate_opened(restart: Restart, event: e.GateOpened, now: float) -> Step:
    """The first look said idle; close the door and look again."""
    restart = changed(restart, phase=Phase.GATE_OPEN, attempt=restart.attempt + 1, due=now + RECHECK, after=None)
    return restart, (f.RaiseFence(restart.attempt),)


def rechecked(restart: Restart, event: e.Rechecked, now: float) -> Step:
    if not event.open:
        return recheck_late(restart, event, now)
    target = _target(restart)
    fence_due = now + restart.rules.fence
    restart = changed(
        restart,
        fence_due=fence_due,
        due=fence_due,
        heard=False,
        yielded=False,
        applied=False,
        drained=False,
        reason="",
        restored=True,
        code=0,
    )
    if target.kind is Kind.VERSION and not restart.by_hand:
        restart = changed(restart, updated=(*restart.updated, now)[-restart.rules.updates :])
    now_told = f.TellNow(target)
    if target.changes_disk:
        return changed(restart, phase=Phase.APPLYING, applied=True), (now_told, f.Apply(restart.attempt, target))
    return changed(restart, phase=Phase.FENCED), (now_told, _begun(restart))


def _begun(restart: Restart) -> f.Effect:
    """Start the successor, or where a supervisor will do that, see that it can."""
    kind = f.Prove if restart.rules.mode is Mode.SUPERVISED else f.Spawn
    return kind(restart.attempt, _target(restart))


def recheck_late(restart: Restart, event: e.Event, now: float) -> Step:
    return changed(restart, phase=Phase.ARMED, due=None), (f.LiftFence(restart.attempt),)


def applied(restart: Restart, event: e.Applied, now: float) -> Step:
    return changed(restart, phase=Phase.FENCED), (_begun(restart),)


def proved(restart: Restart, event: e.Proved, now: float) -> Step:
    return changed(restart, phase=Phase.EXIT, due=None), (f.Leave(RESTART_ME),)


def spawned(restart: Restart, event: e.Spawned, now: float) -> Step:
    return changed(restart, phase=Phase.SPAWNED, due=_within_fence(restart, now, restart.rules.hello)), ()


def hello(restart: Restart, event: e.Hello, now: float) -> Step:
    if restart.heard:
        return restart, ()
    due = _within_fence(restart, now, restart.rules.listening)
    return changed(restart, heard=True, due=due), (f.SendListener(restart.attempt),)


def listening(restart: Restart, event: e.Listening, now: float) -> Step:
    """It can do it: workers end before the word is given, so no two pools hold one device."""
    if not restart.heard:
        return restart, ()
    due = _within_fence(restart, now, restart.rules.pool_close)
    return changed(restart, phase=Phase.PROVEN, due=due), (f.ClosePool(restart.attempt),)


def pool_closed(restart: Restart, event: e.PoolClosed, now: float) -> Step:
    if restart.yielded:
        return restart, ()
    return changed(restart, yielded=True), (f.Yield(restart.attempt),)


def yielded(restart: Restart, event: e.Yielded, now: float) -> Step:
    restart = changed(restart, phase=Phase.COMMITTED, due=now + restart.rules.serving, fence_due=None)
    return restart, (f.SendCommit(restart.attempt),)


def serving(restart: Restart, event: e.Serving, now: float) -> Step:
    """From here on this process is the standby."""
    return changed(restart, phase=Phase.CONFIRMING, due=now + restart.rules.confirm), (f.Drain(restart.attempt),)


def drained_early(restart: Restart, event: e.Drained, now: float) -> Step:
    return changed(restart, drained=True), ()


def confirmed(restart: Restart, event: e.Confirmed, now: float) -> Step:
    return _leaves(restart, now, 0)


def goodbye(restart: Restart, event: e.Goodbye, now: float) -> Step:
    """It was asked to end: that is no failure, and this process does not come back."""
    return _leaves(restart, now, event.code)


def _leaves(restart: Restart, now: float, code: int) -> Step:
    if restart.drained:
        return changed(restart, phase=Phase.EXIT, due=None, code=code), (f.Leave(code, True),)
    return changed(restart, phase=Phase.DRAINING, due=now + restart.rules.drain, code=code), ()


def drained(restart: Restart, event: e.Event, now: float) -> Step:
    return changed(restart, phase=Phase.EXIT, due=None), (f.Leave(restart.code, True),)


def stop_now(restart: Restart, event: e.StopWanted, now: float) -> Step:
    return changed(restart, phase=Phase.EXIT, due=None), (f.Leave(0),)


def stop_passed_on(restart: Restart, event: e.StopWanted, now: float) -> Step:
    """The successor has the store: it is the one to end, and says goodbye."""
    return changed(restart, stopping=True), (f.PassOn(restart.attempt),)
