"""A scripted world around the lifecycle machine: everything a driver, its workers and its callers may do next.

The world remembers which effects were asked for and not answered, which processes live and who holds a lane, and lists
every next event. It knows nothing of the machine's rules, so it also does what is inconvenient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.contract import DUTIES
from comfy_env.lifecycle.deaths import Kind, Outcome
from comfy_env.lifecycle.machine import next_due
from comfy_env.lifecycle.record import Env, State
from comfy_env.settings import Settings
from comfy_env.values import ExitStatus, Proof

KILLED = ExitStatus(signal=9)
CRASHED = ExitStatus(signal=11)
GOOD, BAD = Proof("d", "d"), Proof("d", "zeros")
RETURNED = Outcome(Kind.RETURNED)
OBLIGING = frozenset(effect for effect, duty in DUTIES.items() if duty.answers)
"""The effects that somebody must answer."""

A_LONG_TIME = 2000.0
"""Longer than any limit of a scenario."""

LIMITS = Settings(call_silence=20.0, idle_release=70.0, idle_reap=100.0, crash_limit=2, tick=10.0)

Extra = Callable[[Env], e.Event]
"""Makes one event that may be posted at any moment, once in a history."""


@dataclass(frozen=True)
class Scenario:
    """What may happen in one exploration. ``generations`` bounds it: the birth of a later one is not followed."""

    name: str
    calls: int = 2
    generations: int = 2
    limits: Settings = LIMITS
    killable: bool = True
    births_fail: bool = False
    deaths: int = 0
    crashes_told: bool = False
    lanes_break: bool = False
    askers_leave: bool = False
    alive: bool = False
    old_news: bool = False
    wont_die: bool = False
    time: bool = True
    extras: tuple[Extra, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """``pending`` are effects not answered, ``up`` the generations whose process runs, ``holding`` who is in a call."""

    asked: int = 0
    left: frozenset[int] = frozenset()
    pending: frozenset[f.Effect] = frozenset()
    up: frozenset[int] = frozenset()
    holding: frozenset[tuple[int, int]] = frozenset()
    deaths: int = 0
    told: frozenset[int] = frozenset()   # generations that told of a crash and whose exit is still to come
    used: int = 0   # one bit for each extra

    def without(self, effect: f.Effect, **changes: Any) -> World:
        return replace(self, pending=self.pending - {effect}, **changes)


class Move(NamedTuple):
    event: e.Event
    now: float
    world: World


def obliged(world: World, env: Env, event: e.Event, effects: tuple[f.Effect, ...]) -> World:
    """Return the world after a step: with the effects to be answered, and with an asker that was given the lane at once in its call."""
    new = frozenset(effect for effect in effects if type(effect) in OBLIGING)
    if isinstance(event, e.CallWanted) and env.row.activity.running == event.ticket:
        world = replace(world, holding=world.holding | {(env.row.generation, event.ticket)})
    return replace(world, pending=world.pending | new) if new else world


def moves(scenario: Scenario, env: Env, world: World) -> Iterator[Move]:
    """Yield everything that may happen next."""
    if world.asked < scenario.calls:
        asked = replace(world, asked=world.asked + 1)
        yield Move(e.CallWanted(asked.asked), 0.0, asked)
        yield from (Move(e.CallWanted(asked.asked, seen=generation), 0.0, asked) for generation in sorted(world.up))
    for effect in sorted(world.pending, key=_order):
        yield from ANSWERS[type(effect)](scenario, env, world, effect)
    yield from _askers(scenario, env, world)
    yield from _processes(scenario, world)
    yield from _time(scenario, env, world)
    yield from _extras(scenario, env, world)
    if scenario.old_news:
        yield from (Move(event, 0.0, world) for event in old_news(env.row.generation - 1))


def _order(effect: f.Effect) -> tuple[int, str, int]:
    return effect.generation, type(effect).__name__, getattr(effect, "ticket", 0)


# ---------------------------------------------------------------- who answers an effect, and how

def _spawn(scenario: Scenario, env: Env, world: World, effect: f.Spawn) -> Iterator[Move]:
    generation = effect.generation
    kept = env.row.generation == generation and env.row.state is State.SPAWNING
    up = world.up | {generation} if kept else world.up
    yield Move(e.Spawned(generation, 100 + generation, "card"), 0.0, world.without(effect, up=up))
    if kept and world.deaths < scenario.deaths:
        yield Move(e.ProcessExited(generation, KILLED), 0.0, replace(world, deaths=world.deaths + 1))
    if scenario.births_fail:
        yield Move(e.SpawnFailed(generation, Outcome(Kind.SPAWN_FAILED)), 0.0, world.without(effect))


def _open_lanes(scenario: Scenario, env: Env, world: World, effect: f.OpenLanes) -> Iterator[Move]:
    yield Move(e.LanesOpen(effect.generation), 0.0, world.without(effect))
    if scenario.alive:
        yield Move(e.SignOfLife(effect.generation, "started"), 0.0, world)
    if scenario.births_fail:
        yield Move(e.LanesFailed(effect.generation, Outcome(Kind.REFUSED)), 0.0, world.without(effect))


def _prove(scenario: Scenario, env: Env, world: World, effect: f.Prove) -> Iterator[Move]:
    yield Move(e.Proved(effect.generation, GOOD, "d"), 0.0, world.without(effect))
    if scenario.births_fail:
        yield Move(e.Proved(effect.generation, BAD, "d"), 0.0, world.without(effect))
        yield Move(e.ProofFailed(effect.generation, Outcome(Kind.REFUSED)), 0.0, world.without(effect))


def _dispatch(scenario: Scenario, env: Env, world: World, effect: f.Dispatch) -> Iterator[Move]:
    rest = world.without(effect)
    if effect.ticket in world.left:
        return
    holds = env.row.generation == effect.generation and env.row.activity.offered == effect.ticket
    taken = replace(rest, holding=rest.holding | {(effect.generation, effect.ticket)}) if holds else rest
    yield Move(e.Accepted(effect.generation, effect.ticket), 0.0, taken)


def _ping(scenario: Scenario, env: Env, world: World, effect: f.Ping) -> Iterator[Move]:
    yield Move(e.Ponged(effect.generation), 0.0, world.without(effect))
    if scenario.lanes_break:
        yield Move(e.PingFailed(effect.generation, "no pong"), 0.0, world.without(effect))


def _release(scenario: Scenario, env: Env, world: World, effect: f.Release) -> Iterator[Move]:
    yield Move(e.Receipt(effect.generation, env.row.held, 0), 0.0, world.without(effect))
    if scenario.lanes_break:
        yield Move(e.ReleaseFailed(effect.generation, "refused"), 0.0, world.without(effect))


def _goodbye(scenario: Scenario, env: Env, world: World, effect: f.Goodbye) -> Iterator[Move]:
    up = world.up - {effect.generation}
    yield Move(e.ProcessExited(effect.generation, ExitStatus(code=0)), 0.0, world.without(effect, up=up))


def _ask_stack(scenario: Scenario, env: Env, world: World, effect: f.AskStack) -> Iterator[Move]:
    yield Move(e.StackRead(effect.generation, "stack"), 0.0, world.without(effect))


def _kill(scenario: Scenario, env: Env, world: World, effect: f.Kill) -> Iterator[Move]:
    generation = effect.generation
    quiet = world.pending if scenario.old_news else frozenset(x for x in world.pending if x.generation != generation)
    gone = replace(world, pending=quiet - {effect}, up=world.up - {generation}, told=world.told - {generation})
    yield Move(e.TreeGone(generation, KILLED), 0.0, gone)
    if scenario.wont_die:
        yield Move(e.WontDie(generation, "in the kernel"), 0.0, world.without(effect))


ANSWERS: dict[type[f.Effect], Callable[[Scenario, Env, World, Any], Iterator[Move]]] = {
    f.Spawn: _spawn,
    f.OpenLanes: _open_lanes,
    f.Prove: _prove,
    f.Dispatch: _dispatch,
    f.Ping: _ping,
    f.Release: _release,
    f.Goodbye: _goodbye,
    f.AskStack: _ask_stack,
    f.Kill: _kill,
}


# ---------------------------------------------------------------- what happens unasked

def _askers(scenario: Scenario, env: Env, world: World) -> Iterator[Move]:
    for generation, ticket in sorted(world.holding):
        done = replace(world, holding=world.holding - {(generation, ticket)})
        yield Move(e.CallEnded(generation, ticket, RETURNED), 0.0, done)
        if scenario.alive:
            yield Move(e.CallAlive(generation, ticket), 0.0, world)
            yield Move(e.CallAlive(generation, ticket, asking=True), 0.0, world)
        if scenario.lanes_break:
            yield Move(e.LaneLost(generation), 0.0, done)
    if scenario.askers_leave:
        inside = {ticket for _, ticket in world.holding}
        for ticket in range(1, world.asked + 1):
            if ticket not in inside and ticket not in world.left:
                yield Move(e.CallWithdrawn(ticket), 0.0, replace(world, left=world.left | {ticket}))


def _processes(scenario: Scenario, world: World) -> Iterator[Move]:
    if world.deaths < scenario.deaths:
        for generation in sorted(world.up):
            died = replace(world, up=world.up - {generation}, deaths=world.deaths + 1)
            yield Move(e.ProcessExited(generation, KILLED), 0.0, died)
            if scenario.crashes_told:
                yield Move(e.CrashTold(generation, CRASHED, "stack"), 0.0, replace(died, told=world.told | {generation}))
    for generation in sorted(world.told):
        yield Move(e.ProcessExited(generation, CRASHED), 0.0, replace(world, told=world.told - {generation}))


def _time(scenario: Scenario, env: Env, world: World) -> Iterator[Move]:
    due = next_due(env)
    if due is None or due > 0.0:
        yield Move(e.Tick(), 0.0, world)
    if scenario.time:
        yield Move(e.Tick(), A_LONG_TIME if due is None else max(0.0, due), world)


def _extras(scenario: Scenario, env: Env, world: World) -> Iterator[Move]:
    for index, make in enumerate(scenario.extras):
        if not world.used >> index & 1:
            yield Move(make(env), 0.0, replace(world, used=world.used | 1 << index))


def old_news(generation: int) -> tuple[e.Event, ...]:
    """Return one piece of each kind of news of a generation."""
    if generation < 1:
        return ()
    failed = Outcome(Kind.SPAWN_FAILED)
    return (
        e.Spawned(generation, 1), e.SpawnFailed(generation, failed), e.SignOfLife(generation, "late"), e.LanesOpen(generation),
        e.LanesFailed(generation, failed), e.Proved(generation, GOOD, "d"), e.ProofFailed(generation, failed), e.Accepted(generation, 1),
        e.CallAlive(generation, 1), e.CallEnded(generation, 1, RETURNED), e.CallEnded(generation, 2, RETURNED), e.Ponged(generation),
        e.PingFailed(generation, "late"), e.HeldGrew(generation, 1), e.Receipt(generation, 0, 0), e.ReleaseFailed(generation, "late"),
        e.ProcessExited(generation, KILLED), e.CrashTold(generation, CRASHED), e.LaneLost(generation), e.StackRead(generation, "late"),
        e.TreeGone(generation, KILLED), e.WontDie(generation), e.StandInsChanged(generation, 1), e.HostHoldsChanged(generation, 1, 1),
        e.Outgrown(generation, 1), e.Demoted(generation, "late"),
    )
