"""The machine: one table, from an event and the row's state to the handler of that step.

A cell that is missing means that the event changes nothing in that state and asks for nothing; so does news of another
generation than the row's. Every handler is a pure function (env, event, now) -> (env, effects).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from comfy_env.lifecycle import births, calls, commands, host, limits, news
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.record import BIRTH, SERVING, Env, State, Step
from comfy_env.lifecycle.telling import tell
from comfy_env.settings import Settings

Handler = Callable[[Env, Any, float], Step]
Cells = Mapping[State, Handler]
Table = Mapping[type[e.Event], Cells]

S = State
RESTING = (S.COLD, S.PARKED)
IDLE = (S.READY, S.PINGING, S.RELEASING)
QUEUEING = (*BIRTH, S.READY, S.BUSY, S.PINGING, S.RELEASING, S.CLOSING)
ANY = tuple(State)
OPEN = tuple(state for state in State if state is not State.GONE)


def _in(states: Iterable[State], handler: Handler) -> dict[State, Handler]:
    return dict.fromkeys(states, handler)


TABLE: Table = {
    # asked from outside
    e.CallWanted: {
        S.COLD: calls.wanted_cold,
        S.PARKED: calls.wanted_parked,
        S.GONE: calls.wanted_gone,
        S.WEDGED: calls.wanted_wedged,
        **_in((*BIRTH, S.BUSY, S.PINGING, S.RELEASING, S.CLOSING), calls.wanted_later),
        S.READY: calls.wanted_ready,
    },
    e.CallWithdrawn: _in(QUEUEING, calls.withdrawn),
    e.InterruptWanted: {**_in(QUEUEING, calls.interrupt_waiting), S.BUSY: calls.interrupt_running},
    e.ReleaseWanted: _in(SERVING, commands.release_wanted),
    e.KillWanted: {
        **_in((*BIRTH, *IDLE), news.kill_idle),
        S.BUSY: news.kill_busy,
        S.CLOSING: news.kill_closing,
        S.WEDGED: news.kill_wedged,
    },
    e.ShutdownWanted: {
        **_in(RESTING, news.shutdown_resting),
        **_in(BIRTH, news.shutdown_birth),
        **_in(IDLE, news.shutdown_idle),
        S.BUSY: news.shutdown_busy,
        **_in((S.CLOSING, S.WEDGED), news.shutdown_ending),
    },
    e.Tick: {
        S.SPAWNING: limits.spawning,
        S.JOINING: limits.joining,
        S.PROVING: limits.proving,
        S.READY: limits.ready,
        S.BUSY: limits.busy,
        S.PINGING: limits.pinging,
        S.RELEASING: limits.releasing,
        S.CLOSING: limits.closing,
        S.PARKED: limits.parked,
        S.WEDGED: limits.wedged,
    },
    e.Unpark: {S.PARKED: host.unpark, S.CLOSING: host.unpark_closing},
    e.PromptChanged: _in(ANY, host.prompt_changed),
    e.CardTight: _in(ANY, host.card_tight),
    e.SourceChanged: _in((*BIRTH, *SERVING), host.source_changed),
    e.EnvChanged: {**_in(OPEN, host.env_changed_resting), **_in((*BIRTH, *SERVING), host.env_changed)},
    e.ZygoteUp: _in(ANY, host.zygote_up),
    e.ZygoteLost: _in(OPEN, host.zygote_lost),
    e.StandInsRegistered: _in(ANY, host.stand_ins_registered),
    # news of one process
    e.Spawned: {S.SPAWNING: births.spawned, S.CLOSING: births.spawned_late},
    e.SpawnFailed: {S.SPAWNING: births.spawn_failed},
    e.SignOfLife: {S.JOINING: births.sign_of_life},
    e.LanesOpen: {S.JOINING: births.lanes_open},
    e.LanesFailed: {S.JOINING: births.lanes_failed},
    e.Proved: {S.PROVING: births.proved},
    e.Demoted: _in(SERVING, births.demoted),
    e.ProofFailed: {S.PROVING: births.proof_failed},
    e.Accepted: {S.READY: calls.accepted},
    e.CallAlive: {S.BUSY: calls.alive},
    e.CallEnded: {S.BUSY: calls.ended},
    e.Ponged: {S.PINGING: commands.ponged},
    e.PingFailed: {S.PINGING: commands.ping_failed},
    e.HeldGrew: _in(SERVING, commands.held_grew),
    e.Receipt: {S.RELEASING: commands.receipt_now, **_in((S.READY, S.BUSY, S.PINGING), commands.receipt_beside)},
    e.ReleaseFailed: {S.RELEASING: commands.release_failed},
    e.ProcessExited: {
        **_in((S.SPAWNING, S.JOINING), news.exited_joining),
        S.PROVING: news.exited_proving,
        **_in(SERVING, news.exited_serving),
        S.CLOSING: news.exited_closing,
        S.WEDGED: news.exited_wedged,
    },
    e.CrashTold: {S.JOINING: news.crash_joining, S.PROVING: news.crash_proving, **_in(SERVING, news.crash_serving)},
    e.LaneLost: _in((S.PROVING, *SERVING), news.lane_lost),
    e.StackRead: {S.CLOSING: news.stack_read},
    e.TreeGone: {
        **_in((S.SPAWNING, S.JOINING), news.exited_joining),
        S.PROVING: news.exited_proving,
        **_in(SERVING, news.exited_serving),
        S.CLOSING: news.tree_gone,
        S.WEDGED: news.tree_gone_wedged,
    },
    e.WontDie: {S.CLOSING: news.wont_die},
    e.StandInsChanged: {**_in(SERVING, host.stand_ins_changed), S.CLOSING: host.stand_ins_closing},
    e.HostHoldsChanged: _in(SERVING, host.host_holds),
    e.Outgrown: _in(SERVING, host.outgrown),
}

def step(env: Env, event: e.Event, now: float) -> Step:
    """Return the environment after an event, and what the driver must do. `now` is lived time in seconds."""
    after, effects = decide(env, event, now)
    if after is env and not effects:
        return env, ()
    return tell(env, event, after, effects, now), effects


def decide(env: Env, event: e.Event, now: float, table: Table = TABLE) -> Step:
    """Return what `step` returns, without the line in the story."""
    handler = table[type(event)].get(env.row.state)
    if handler is None or (isinstance(event, e.News) and event.generation != env.row.generation):
        return env, ()
    return handler(env, event, now)


def next_due(env: Env) -> float | None:
    """Return the lived time at which a Tick will have something to do, None while nothing is foreseen."""
    return limits.due(env)


def new_env(key: str, limits: Settings | None = None, killable: bool = True) -> Env:
    """Return an environment that has never had a worker."""
    return Env(key, Settings() if limits is None else limits, killable)
