"""The scripted world around the restart machine: what it was asked for, what its replacement has said, and what can come next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Mode, Phase, Restart, Rules, Undo
from comfy_env.orchestrator.state import next_due
from comfy_env.orchestrator.target import Kind, Target

ALL, RESTS, NONE = "every limit passes", "only rests end", "no time passes"

TREE = Target(Kind.TREE, "tree-1", "new build")
TREE_2 = Target(Kind.TREE, "tree-2", "newer build")
VERSION = Target(Kind.VERSION, "2.0", "2.0")
VERSION_2 = Target(Kind.VERSION, "3.0", "3.0")
ASKED = Target(Kind.ASKED, "asked", "this build")


@dataclass(frozen=True)
class Scenario:
    """Which doors of the world are open. ``extras`` are events that may come at any moment."""

    name: str
    rules: Rules = Rules()
    extras: tuple[e.Event, ...] = (e.Found(TREE),)
    failures: bool = True
    deaths: bool = True
    time: str = ALL
    old_news: bool = False
    attempts: int = 2


@dataclass(frozen=True)
class World:
    """What is true outside. ``voice`` is what the replacement said last, "silent" when it ended, None: nothing of it is left."""

    pending: frozenset[f.Effect] = frozenset()
    voice: str | None = None
    shown: bool = False  # the replacement has the listener
    word: bool = False  # the replacement has the word: it may own the store
    ours: bool = True  # we own the store, and accept
    fence: bool = False
    pool_ended: bool = False
    changed: bool = False  # the files on disk are not those we were started from
    stop: bool = False
    now_told: bool = False
    released: bool = False  # the replacement was confirmed or said goodbye
    tried: tuple[tuple[str, float], ...] = ()  # automatic attempts: what, when
    noted: frozenset[str] = frozenset()


class Move(NamedTuple):
    event: e.Event
    now: float
    world: World


@dataclass(frozen=True)
class Moment:
    """One step with what is known around it: the rules are predicates of it."""

    world: World
    before: Restart
    event: e.Event
    now: float
    after: Restart
    effects: tuple[f.Effect, ...]
    then: World = field(default_factory=World)

    def each(self, kind: type) -> list:
        return [effect for effect in self.effects if isinstance(effect, kind)]


def moves(scenario: Scenario, restart: Restart, world: World) -> Iterator[Move]:
    """Yield everything that may happen next."""
    for effect in sorted(world.pending, key=repr):
        rest = replace(world, pending=world.pending - {effect})
        for event, then in _answers(scenario, effect, rest):
            yield Move(event, 0.0, then)
    yield from _voices(scenario, restart, world)
    for event in scenario.extras:
        yield Move(event, 0.0, replace(world, stop=True) if isinstance(event, e.StopWanted) else world)
    yield Move(e.GateOpened(), 0.0, world)
    due = next_due(restart)
    passes = scenario.time == ALL or (scenario.time == RESTS and restart.phase in (Phase.COOLDOWN, Phase.STAGED))
    if passes and due is not None:
        signalled = restart.undo[:1] == (Undo.KILL,)  # the signal was sent: it runs none of its code any more
        yield Move(e.Tick(), max(0.0, due), replace(world, voice=None, word=False) if signalled else world)
    if scenario.old_news and restart.attempt > 1:
        for kind, facts in _NEWS:
            yield Move(kind(restart.attempt - 1, *facts), 0.0, world)


_NEWS = (
    (e.Rechecked, (True,)),
    (e.Spawned, ()),
    (e.Hello, ()),
    (e.Listening, ()),
    (e.Serving, ()),
    (e.Confirmed, ()),
    (e.Goodbye, (0,)),
    (e.Ended, ("late",)),
    (e.Killed, ()),
    (e.TakenBack, ()),
    (e.PoolClosed, ()),
    (e.Yielded, ()),
    (e.Drained, ()),
    (e.Applied, ()),
)


def _answers(scenario: Scenario, effect: f.Effect, world: World) -> Iterator[tuple[e.Event, World]]:
    """Yield the events that may answer an effect, and the world after it was carried out."""
    attempt = getattr(effect, "attempt", 0)
    match effect:
        case f.Check():
            yield e.CheckEmpty(), world
            yield e.Found(VERSION), world
        case f.RaiseFence():
            yield e.Rechecked(attempt, True), world
            yield e.Rechecked(attempt, False), world
        case f.Apply():
            yield e.Applied(attempt), world
        case f.Spawn():
            yield e.Spawned(attempt), replace(world, voice="")
        case f.Prove():
            yield e.Proved(attempt), world
        case f.ClosePool():
            yield e.PoolClosed(attempt), replace(world, pool_ended=True)
        case f.Yield():
            yield e.Yielded(attempt), world
        case f.Drain():
            yield e.Drained(attempt), world
        case f.Kill():
            yield e.Killed(attempt), replace(world, voice=None, word=False)
        case f.TakeBack():
            yield e.TakenBack(attempt), replace(world, ours=True)
        case f.PutFilesBack():
            yield e.PutBack(attempt, True), replace(world, changed=False)
    if scenario.failures:
        yield from _failures(effect, attempt, world)


def _failures(effect: f.Effect, attempt: int, world: World) -> Iterator[tuple[e.Event, World]]:
    kinds = {f.Apply: e.ApplyFailed, f.Spawn: e.SpawnFailed, f.Prove: e.ProofFailed, f.Yield: e.YieldFailed, f.TakeBack: e.TakeBackFailed}
    if type(effect) in kinds:
        yield kinds[type(effect)](attempt, "no"), world
    if isinstance(effect, f.PutFilesBack):
        yield e.PutBack(attempt, False), world


_ORDER = {
    "": ("hello", e.Hello),
    "hello": ("listening", e.Listening),
    "listening": ("serving", e.Serving),
    "serving": ("confirmed", e.Confirmed),
}


def _voices(scenario: Scenario, restart: Restart, world: World) -> Iterator[Move]:
    """Yield what the living replacement may say: in order, each when it was given what it needs; death at any time."""
    if world.voice is None:
        return
    attempt = restart.attempt
    may = {"": True, "hello": world.shown, "listening": world.word, "serving": True}
    if may.get(world.voice):
        said, kind = _ORDER[world.voice]
        yield Move(kind(attempt), 0.0, replace(world, voice=said, released=world.released or said == "confirmed"))
    if scenario.deaths and world.voice not in ("confirmed", "silent"):
        yield Move(e.Ended(attempt, "died"), 0.0, replace(world, voice="silent"))
        yield Move(e.Goodbye(attempt, 0), 0.0, replace(world, voice="silent", released=world.released or world.voice == "serving"))


def obliged(world: World, moment: Moment) -> World:
    """Return the world after the machine asked for its effects."""
    for effect in moment.effects:
        world = _asked(world, effect)
        if type(effect) in f.ANSWERS:
            world = replace(world, pending=world.pending | {effect})
    if moment.each(f.RaiseFence):
        world = replace(world, fence=True)
    begun = moment.each(f.TellNow)
    if begun and not moment.after.by_hand:
        world = replace(world, tried=(*world.tried, (begun[0].target.id, moment.now)))
    return world


def _asked(world: World, effect: f.Effect) -> World:
    match effect:
        case f.LiftFence():
            return replace(world, fence=False, pool_ended=False)
        case f.SendListener():
            return replace(world, shown=True)
        case f.SendCommit():
            return replace(world, word=True)
        case f.Yield():
            return replace(world, ours=False)
        case f.Apply():
            return replace(world, changed=True)
        case f.Spawn():
            return replace(world, shown=False, word=False, released=False)
        case f.TellNow():
            return replace(world, now_told=True)
        case f.TellFailed():
            return replace(world, now_told=False, changed=world.changed and effect.restored)
        case f.Leave():
            return replace(world, now_told=False)
        case f.Kill():
            return replace(world, pending=frozenset(other for other in world.pending if not isinstance(other, f.Spawn)))
        case f.Note():
            return replace(world, noted=world.noted | {effect.line})
    return world


ONE_UPDATE = Rules(updates=1)
BY_HAND = (e.Asked(ASKED),)

SCENARIOS = (
    Scenario("a build is loaded", extras=(e.Found(TREE),)),
    Scenario("a second build comes meanwhile", extras=(e.Found(TREE), e.Found(TREE_2)), attempts=3, time=NONE),
    Scenario("builds come and go", extras=(e.Found(TREE), e.Vanished()), attempts=2),
    Scenario("a version is loaded", extras=(e.Found(VERSION),), attempts=1),
    Scenario("a version is tried again", extras=(e.Found(VERSION),), attempts=3, failures=False, time=RESTS),
    Scenario("versions are checked for", extras=(e.CheckDue(), e.StopWanted(), *BY_HAND), attempts=1, deaths=False, time=NONE),
    Scenario("a check takes too long", extras=(e.CheckDue(), e.Found(TREE)), attempts=0),
    Scenario("updates are capped", rules=ONE_UPDATE, extras=(e.Found(VERSION), e.Found(VERSION_2)), deaths=False, time=RESTS),
    Scenario(
        "a capped version waits",
        rules=ONE_UPDATE,
        extras=(e.Found(VERSION), e.Found(VERSION_2), e.CheckDue()),
        failures=False,
        deaths=False,
        time=RESTS,
    ),
    Scenario("restarts by hand", extras=(*BY_HAND, e.Found(TREE)), attempts=2, time=NONE),
    Scenario("restarts by hand while limits pass", extras=BY_HAND, attempts=2),
    Scenario(
        "everything automatic is off",
        rules=Rules(automatic=False),
        extras=(e.Found(TREE), e.Found(VERSION), e.CheckDue(), *BY_HAND),
        attempts=1,
    ),
    Scenario(
        "restarts are told, not done",
        rules=Rules(autorestart=False),
        extras=(e.Found(TREE), e.Found(VERSION), e.Vanished(), e.CheckDue(), *BY_HAND),
        attempts=1,
        time=NONE,
    ),
    Scenario(
        "a supervisor starts us", rules=Rules(mode=Mode.SUPERVISED), extras=(e.Found(TREE), e.Found(VERSION), e.StopWanted()), attempts=1
    ),
    Scenario(
        "nobody would start us again", rules=Rules(mode=Mode.NOTIFY), extras=(e.Found(TREE), e.Found(VERSION), *BY_HAND, e.StopWanted())
    ),
    Scenario("it is stopped at any moment", extras=(e.Found(TREE), e.StopWanted()), attempts=1),
    Scenario("it is stopped while a version is loaded", extras=(e.Found(VERSION), e.StopWanted()), attempts=1),
    Scenario("news of a former attempt come late", extras=(e.Found(TREE), e.Found(TREE_2)), old_news=True, attempts=2, time=NONE),
)
