"""Handlers: what makes a restart wanted, replaces what it aims at, or calls it off. Pure."""

from __future__ import annotations

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Mode, Phase, Restart, Step, changed
from comfy_env.orchestrator.target import Kind, Target

HOUR = 3600.0
LOADED_BY = "`comfy-env service {verb}` loads it"


def check_idle(restart: Restart, event: e.CheckDue, now: float) -> Step:
    if not restart.rules.automatic:
        return restart, ()
    return changed(restart, phase=Phase.CHECKING, due=now + restart.rules.check), (f.Check(),)


def check_beside(restart: Restart, event: e.CheckDue, now: float) -> Step:
    return restart, (f.Check(),) if restart.rules.automatic else ()


def nothing_found(restart: Restart, event: e.Event, now: float) -> Step:
    return changed(restart, phase=Phase.IDLE, due=None), ()


def found(restart: Restart, event: e.Found, now: float) -> Step:
    return consider(restart, event.target, now)


def consider(restart: Restart, target: Target, now: float) -> Step:
    """Take a target nobody asked for: arm, wait, or tell; what failed before is left alone."""
    if not restart.rules.automatic or _rests(restart, target, now):
        return nothing_found(restart, e.Tick(), now) if restart.phase is Phase.CHECKING else (restart, ())
    if restart.target == target and restart.phase in (Phase.STAGED, Phase.ARMED):
        return restart, ()
    if restart.phase is Phase.ARMED and restart.by_hand:
        return _armed(restart, target, by_hand=True)
    if not restart.rules.autorestart or restart.rules.mode is Mode.NOTIFY:
        return _told(restart, target)
    free_at = _free_at(restart, now) if target.kind is Kind.VERSION else None
    return _armed(restart, target, by_hand=False) if free_at is None else _capped(restart, target, free_at)


def _rests(restart: Restart, target: Target, now: float) -> bool:
    failure = restart.failure(target)
    return failure is not None and now < failure.until


def _capped(restart: Restart, target: Target, free_at: float) -> Step:
    """Keep a version until the cap on updates lets it through, and say so."""
    line = f"{target.label} is ready; there were {restart.rules.updates} updates within an hour, so it waits"
    staged = changed(restart, phase=Phase.STAGED, target=target, due=free_at, told=restart.told | {target.id})
    return staged, (f.Note(line),)


def _armed(restart: Restart, target: Target, by_hand: bool) -> Step:
    return changed(restart, phase=Phase.ARMED, target=target, by_hand=by_hand, due=None), (f.TellPending(target),)


def _told(restart: Restart, target: Target) -> Step:
    """Stage a target that is not loaded by itself, and say so once."""
    staged = changed(restart, phase=Phase.STAGED, target=target, due=None, told=restart.told | {target.id})
    if target.id in restart.told:
        return staged, ()
    hint = LOADED_BY.format(verb="update" if target.changes_disk else "restart")
    return staged, (f.Note(f"{target.label} is ready; {hint}"),)


def _free_at(restart: Restart, now: float) -> float | None:
    """Return when the next automatic update may happen, None: now."""
    recent = sorted(at for at in restart.updated if now - at < HOUR)
    return recent[-restart.rules.updates] + HOUR if len(recent) >= restart.rules.updates else None


def wait_over(restart: Restart, event: e.Tick, now: float) -> Step:
    """The cap on updates lets another one through."""
    assert restart.target is not None
    return _armed(restart, restart.target, by_hand=False)


def asked(restart: Restart, event: e.Asked, now: float) -> Step:
    """By hand works always, also into what failed before; what is staged goes first."""
    if restart.rules.mode is Mode.NOTIFY:
        return restart, (f.Note("this process cannot replace itself here; restart it from outside"),)
    target = restart.target if restart.phase in (Phase.STAGED, Phase.ARMED) and restart.target else event.target
    return _armed(restart, target, by_hand=True)


def vanished(restart: Restart, event: e.Vanished, now: float) -> Step:
    """A tree that changed back is no reason any more; somebody's wish still is."""
    if restart.target is None or restart.target.kind is not Kind.TREE or restart.by_hand:
        return restart, ()
    told = (f.TellPending(None),) if restart.phase is Phase.ARMED else ()
    return changed(restart, phase=Phase.IDLE, target=None, due=None), told


def found_meanwhile(restart: Restart, event: e.Found, now: float) -> Step:
    return changed(restart, after=event.target), ()


def vanished_meanwhile(restart: Restart, event: e.Vanished, now: float) -> Step:
    gone = restart.after is not None and restart.after.kind is Kind.TREE
    return (changed(restart, after=None) if gone else restart), ()


def cooled_down(restart: Restart, event: e.Tick, now: float) -> Step:
    return changed(restart, phase=Phase.IDLE, due=None), ()
