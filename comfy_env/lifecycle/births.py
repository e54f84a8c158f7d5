"""A worker's birth: started, joined, proved, trusted. It is timed from the last sign of life."""

from __future__ import annotations

from comfy_env.lifecycle import lane
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.effects import Note, OpenLanes, Prove
from comfy_env.lifecycle.endings import account, rest, retire
from comfy_env.lifecycle.events import Demoted, LanesFailed, LanesOpen, ProofFailed, Proved, SignOfLife, Spawned, SpawnFailed
from comfy_env.lifecycle.record import Activity, Env, State, Step, with_row
from comfy_env.lifecycle.trust import judge


def spawned(env: Env, event: Spawned, now: float) -> Step:
    """Join the lanes of a process that was started."""
    nxt = with_row(env, state=State.JOINING, pid=event.pid, device=event.device, due=now + env.limits.birth)
    return nxt, (OpenLanes(event.generation),)


def spawned_late(env: Env, event: Spawned, now: float) -> Step:
    """Remember the process of a birth that was given up, so that messages can name it."""
    return with_row(env, pid=event.pid, device=event.device), ()


def spawn_failed(env: Env, event: SpawnFailed, now: float) -> Step:
    """Answer everybody waiting; there is no process to kill."""
    env, effects = account(env, now, Reason.BIRTH_FAILED, event.why)
    env, more = rest(env, now)
    return env, (*effects, *more)


def sign_of_life(env: Env, event: SignOfLife, now: float) -> Step:
    """Start the birth limit anew."""
    return with_row(env, due=now + env.limits.birth), ()


def lanes_open(env: Env, event: LanesOpen, now: float) -> Step:
    """Have the worker prove itself."""
    return with_row(env, state=State.PROVING, due=now + env.limits.verify), (Prove(event.generation),)


def lanes_failed(env: Env, event: LanesFailed, now: float) -> Step:
    """End a worker that did not join."""
    return retire(env, now, Reason.BIRTH_FAILED, event.why)


def proof_failed(env: Env, event: ProofFailed, now: float) -> Step:
    """End a worker that brought no proof."""
    return retire(env, now, Reason.REFUSED, event.why)


def proved(env: Env, event: Proved, now: float) -> Step:
    """Judge the proof: refuse, demote or trust the worker."""
    verdict = judge(event.proof, event.expected)
    if verdict.refused:
        return retire(env, now, Reason.REFUSED, Outcome(Kind.REFUSED, f"the worker is refused: {verdict.refused}"))
    env = with_row(env, gpu_ok=verdict.gpu_ok, proved=now, activity=Activity(since=now))
    env, effects = lane.ready(env, now)
    if verdict.demoted:
        effects = (_demotion(event.generation, verdict.demoted), *effects)
    return env, effects


def demoted(env: Env, event: Demoted, now: float) -> Step:
    """Remember that a device's memory is not shared with the worker, and say why."""
    return with_row(env, gpu_ok=False), (_demotion(event.generation, event.why),)


def _demotion(generation: int, why: str) -> Note:
    return Note(generation, f"demoted, its device tensors take the CPU path: {why}", "warning")
