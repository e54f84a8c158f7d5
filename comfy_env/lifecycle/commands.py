"""Commands on a worker's free lane: the health check, the release and its receipt."""

from __future__ import annotations

from comfy_env.lifecycle import lane
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.effects import Note
from comfy_env.lifecycle.endings import retire
from comfy_env.lifecycle.events import HeldGrew, PingFailed, Ponged, Receipt, ReleaseFailed, ReleaseWanted
from comfy_env.lifecycle.record import Env, Step, with_row
from comfy_env.values import Want


def ponged(env: Env, event: Ponged, now: float) -> Step:
    """Trust the lane again and use it."""
    return lane.ready(env, now)


def ping_failed(env: Env, event: PingFailed, now: float) -> Step:
    """Replace the worker; whoever waits gets the next one and notices nothing."""
    return retire(env, now, Reason.PING_FAILED)


def receipt_now(env: Env, event: Receipt, now: float) -> Step:
    """Believe the receipt, the only thing that may shrink what the worker holds, and use the lane."""
    return lane.ready(with_row(env, held=event.held), now)


def receipt_beside(env: Env, event: Receipt, now: float) -> Step:
    """Believe the receipt of a release that was answered inside a callback."""
    return with_row(env, held=event.held), ()


def release_failed(env: Env, event: ReleaseFailed, now: float) -> Step:
    """Go on; what the worker holds is believed as before."""
    env, effects = lane.ready(env, now)
    return env, (Note(event.generation, f"the release failed: {event.why}", "warning"), *effects)


def release_wanted(env: Env, event: ReleaseWanted, now: float) -> Step:
    """Ask at once if the lane is free, else at the next moment it is."""
    wanted = _both(env.row.wanted, event.want)
    return lane.release(env, wanted, now) if lane.is_free(env.row) else (with_row(env, wanted=wanted), ())


def _both(one: Want | None, other: Want) -> Want:
    if one is None or one.bytes is None:
        return one or other
    return other if other.bytes is None or other.bytes > one.bytes else one


def held_grew(env: Env, event: HeldGrew, now: float) -> Step:
    """Believe growth at once, and nothing else."""
    return (with_row(env, held=event.held), ()) if event.held > env.row.held else (env, ())
