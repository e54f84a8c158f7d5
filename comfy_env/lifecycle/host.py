"""What the host tells: stand-ins, what it still holds, its prompt, tight cards, stale code, the zygote."""

from __future__ import annotations

from comfy_env.lifecycle import lane
from comfy_env.lifecycle.crashes import unparked
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.effects import DropQuarantine, DropZygote, Note
from comfy_env.lifecycle.endings import rest, retire
from comfy_env.lifecycle.events import (
    CardTight,
    EnvChanged,
    HostHoldsChanged,
    Outgrown,
    PromptChanged,
    SourceChanged,
    StandInsChanged,
    StandInsRegistered,
    Unpark,
    ZygoteLost,
    ZygoteUp,
)
from comfy_env.lifecycle.idle import TIGHT, is_pressed
from comfy_env.lifecycle.record import Closing, Env, Step, with_ledger, with_parts, with_row


def stand_ins_changed(env: Env, event: StandInsChanged, now: float) -> Step:
    """Count the stand-ins; a stale worker that waited for the last one is replaced."""
    env = with_row(env, stand_ins=event.count)
    return _replaced(env, now)


def stand_ins_closing(env: Env, event: StandInsChanged, now: float) -> Step:
    """Count the stand-ins of a worker that is still to be retired."""
    return (env, ()) if env.row.closing in (Closing.EXIT, Closing.TREE) else (with_row(env, stand_ins=event.count), ())


def stand_ins_registered(env: Env, event: StandInsRegistered, now: float) -> Step:
    """Let the quarantine go: the host's list is no longer being walked."""
    if not env.ledger.quarantined:
        return env, ()
    return with_ledger(env, quarantined=False), (DropQuarantine(env.ledger.generation),)


def host_holds(env: Env, event: HostHoldsChanged, now: float) -> Step:
    """Count what in the host keeps the worker needed."""
    return with_row(env, host_tensors=event.tensors, host_references=event.references), ()


def prompt_changed(env: Env, event: PromptChanged, now: float) -> Step:
    """Remember the running prompt; the end of one may make a worker on a tight card release."""
    return _pressed(with_ledger(env, prompt=event.prompt), now)


def card_tight(env: Env, event: CardTight, now: float) -> Step:
    """Remember which cards are tight; an idle worker there releases at once."""
    others = tuple(device for device in env.ledger.tight if device != event.device)
    env = with_ledger(env, tight=(*others, event.device) if event.yes else others)
    return _pressed(env, now)


def _pressed(env: Env, now: float) -> Step:
    return lane.release(env, TIGHT, now) if lane.is_free(env.row) and is_pressed(env) else (env, ())


def source_changed(env: Env, event: SourceChanged, now: float) -> Step:
    """Have the worker replaced once the change has settled, at once if nobody uses it; sources with a fault change nothing."""
    if event.fault:
        note = Note(env.row.generation, f"the pack's sources changed but are not used: {event.fault}", "warning")
        return (with_row(env, stale=None, settling=None) if env.row.stale is Reason.STALE_SOURCE else env), (note,)
    env, effects = _stale(env, Reason.STALE_SOURCE, now, event.settled)
    env, more = _replaced(env, now)
    return env, (*effects, *more)


def outgrown(env: Env, event: Outgrown, now: float) -> Step:
    """Have a worker that takes more memory than its environment allows replaced as soon as nothing needs it."""
    if env.row.stale is not None:
        return env, ()
    return _replaced(with_row(env, stale=Reason.WORN), now)


def _replaced(env: Env, now: float) -> Step:
    """Replace a stale worker at once if nobody uses it."""
    if lane.is_free(env.row) and lane.replaceable(env, now):
        return retire(env, now, env.row.stale or Reason.STALE_SOURCE)
    return env, ()


def env_changed(env: Env, event: EnvChanged, now: float) -> Step:
    """Have the worker replaced once the change has settled; the zygote was made of the old environment."""
    env, effects = env_changed_resting(env, event, now)
    env, more = _stale(env, Reason.STALE_ENV, now)
    return env, (*effects, *more)


def env_changed_resting(env: Env, event: EnvChanged, now: float) -> Step:
    """Drop the zygote; the next worker is made of the new environment anyway."""
    if not env.ledger.zygote:
        return env, ()
    return with_ledger(env, zygote=False), (DropZygote(env.ledger.generation),)


def _stale(env: Env, reason: Reason, now: float, settled: bool = False) -> Step:
    row = env.row
    settling = now if settled else now + max(env.limits.tick, 2 * env.limits.source_poll)
    note = (Note(row.generation, f"{reason.value}; it is replaced at its next idle moment"),) if row.stale is None else ()
    return with_row(env, stale=reason if row.stale in (None, Reason.WORN) else row.stale, settling=settling), note


def zygote_up(env: Env, event: ZygoteUp, now: float) -> Step:
    """Remember that a zygote serves; a closed environment needs none."""
    if env.ledger.closed:
        return env, (DropZygote(env.ledger.generation),)
    return with_ledger(env, zygote=True), ()


def zygote_lost(env: Env, event: ZygoteLost, now: float) -> Step:
    """Forget the zygote; workers are started plainly."""
    return (with_ledger(env, zygote=False), ()) if env.ledger.zygote else (env, ())


def unpark(env: Env, event: Unpark, now: float) -> Step:
    """End the pause because somebody says the cause is mended."""
    return rest(with_parts(env, unparked(env.ledger, forgiven=True), env.row), now)


def unpark_closing(env: Env, event: Unpark, now: float) -> Step:
    """End the pause before the worker that led to it is gone."""
    return with_parts(env, unparked(env.ledger, forgiven=True), env.row), ()
