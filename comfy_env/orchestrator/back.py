"""Handlers: the way back. The replacement's tree ends first, then the store is taken back, then the files. Pure."""

from __future__ import annotations

import math
from typing import Any

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator import reasons
from comfy_env.orchestrator.restart import Failure, Phase, Restart, Step, Undo, changed
from comfy_env.orchestrator.target import Kind, Target

REFUSED = 78
MINUTE = 60.0
MOST_MINUTES = 60

_UNDO = {Undo.KILL: f.Kill, Undo.TAKE_BACK: f.TakeBack, Undo.PUT_BACK: f.PutFilesBack}
_SPAWNING = (Phase.FENCED, Phase.SPAWNED, Phase.PROVEN, Phase.COMMITTED, Phase.CONFIRMING)
_LATE = {
    Phase.APPLYING: "the installation took too long",
    Phase.FENCED: "the replacement could not be started in time",
    Phase.SPAWNED: "the replacement did not say in time that it can serve",
    Phase.PROVEN: "workers and store could not be given up in time",
    Phase.COMMITTED: "the replacement got the word and did not serve in time",
    Phase.CONFIRMING: "the replacement did not confirm in time that it serves",
}


def failed(restart: Restart, event: Any, now: float) -> Step:
    return roll_back(restart, event.why, now)


def late(restart: Restart, event: e.Tick, now: float) -> Step:
    silent = restart.phase is Phase.SPAWNED and not restart.heard
    return roll_back(restart, "the replacement did not say hello in time" if silent else _LATE[restart.phase], now)


def left_early(restart: Restart, event: e.Goodbye, now: float) -> Step:
    """It was asked to end before it served: so were we, or somebody ended it alone."""
    return roll_back(restart, "the replacement was asked to end before it served", now)


def stop_under_way(restart: Restart, event: e.StopWanted, now: float) -> Step:
    return roll_back(changed(restart, stopping=True), "this process was asked to end", now)


def stop_after(restart: Restart, event: e.StopWanted, now: float) -> Step:
    return changed(restart, stopping=True), ()


def roll_back(restart: Restart, why: str, now: float) -> Step:
    wanted = {Undo.KILL: restart.phase in _SPAWNING, Undo.TAKE_BACK: restart.yielded, Undo.PUT_BACK: restart.applied}
    undo = tuple(step for step in Undo if wanted[step])
    return _next(changed(restart, phase=Phase.ROLLBACK, reason=why, undo=undo, fence_due=None), now)


def _next(restart: Restart, now: float) -> Step:
    if restart.undo:
        effect = _UNDO[restart.undo[0]](restart.attempt)
        return changed(restart, due=now + restart.rules.undo), (effect,)
    return _over(restart, now)


def _done(restart: Restart, undone: Undo, now: float) -> Step:
    """Take the next step back if this was the one under way; a late answer of an earlier one is no answer."""
    if not restart.undo or restart.undo[0] is not undone:
        return restart, ()
    return _next(changed(restart, undo=restart.undo[1:]), now)


def killed(restart: Restart, event: e.Killed, now: float) -> Step:
    return _done(restart, Undo.KILL, now)


def taken_back(restart: Restart, event: e.TakenBack, now: float) -> Step:
    return _done(restart, Undo.TAKE_BACK, now)


def put_back(restart: Restart, event: e.PutBack, now: float) -> Step:
    return _done(changed(restart, restored=restart.restored and event.ok), Undo.PUT_BACK, now)


def lost(restart: Restart, event: Any, now: float) -> Step:
    """The store cannot be had again: better no service than one that forgets."""
    line = f"the store cannot be taken back: {event.why}"
    return changed(restart, phase=Phase.EXIT, due=None, undo=()), (f.Note(line), f.Leave(REFUSED))


def step_late(restart: Restart, event: e.Tick, now: float) -> Step:
    """A step back that does not end: a process that will not die is fenced off by the epoch; files may stay as they are."""
    undone = restart.undo[0]
    if undone is Undo.TAKE_BACK:
        return lost(restart, e.TakeBackFailed(restart.attempt, "it took too long"), now)
    after, effects = _done(changed(restart, restored=restart.restored and undone is not Undo.PUT_BACK), undone, now)
    return after, (f.Note(f"{undone.value} took too long; going on without it"), *effects)


def _over(restart: Restart, now: float) -> Step:
    target = restart.target
    assert target is not None
    if restart.stopping:
        return changed(restart, phase=Phase.EXIT, due=None), (f.Leave(0),)
    told = (f.LiftFence(restart.attempt), f.TellFailed(target, restart.reason, restart.restored))
    failure = _failure(restart, target, now)
    rest = tuple(known for known in restart.failures if known.id != target.id)
    until = failure.until if math.isfinite(failure.until) else None
    restart = changed(restart, phase=Phase.COOLDOWN, target=None, by_hand=False, failures=(*rest, failure)[-20:], due=until)
    after, restart = restart.after, changed(restart, after=None)
    if after is None:
        return restart, told
    restart, more = reasons.consider(restart, after, now)
    return restart, (*told, *more)


def _failure(restart: Restart, target: Target, now: float) -> Failure:
    """A tree is not tried again until it changes, a version after 1, 2, 4 … 60 minutes."""
    before = restart.failure(target)
    count = 1 + (before.count if before else 0)
    wait = min(MOST_MINUTES, 2 ** (count - 1)) * MINUTE if target.kind is Kind.VERSION else math.inf
    return Failure(target.id, count, now + wait)
