"""The explorations of the ordinary test run: each opens some doors of the scripted world and leaves the others shut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Reason
from comfy_env.testing.lifecycle_world import CRASHED, KILLED, LIMITS, Extra, Scenario
from comfy_env.values import Want

CALM = replace(LIMITS, idle_release=0.0, idle_reap=0.0, call_silence=0.0, crash_limit=9)
IDLE = replace(LIMITS, crash_limit=9)


def _now(event: e.Event) -> Extra:
    return lambda env: event


def _news(kind: Callable[..., e.Event], *facts: Any) -> Extra:
    return lambda env: kind(env.row.generation, *facts)


PINGED = replace(CALM, ping_idle=-1.0)
"""Every call to an idle worker is preceded by a ping."""

RELEASE = _now(e.ReleaseWanted(Want(None)))
KILL_AGAIN = _now(e.KillWanted(Reason.STALE_ENV))
SHUTDOWN = _now(e.ShutdownWanted())
KILL = _now(e.KillWanted(Reason.ASKED))
INTERRUPT = _now(e.InterruptWanted())
CHANGE, ZYGOTE = _now(e.SourceChanged()), _now(e.ZygoteUp())
GROWTH = _news(e.HeldGrew, 5)
STAND_IN, NO_STAND_IN = _news(e.StandInsChanged, 1), _news(e.StandInsChanged, 0)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("births fail and workers die", births_fail=True, alive=True, deaths=1, limits=CALM),
    Scenario("a crash loop parks", births_fail=True, limits=replace(CALM, crash_limit=1), extras=(_now(e.Unpark()),)),
    Scenario("a crash loop parks after two", births_fail=True, generations=3, calls=3, time=False, limits=replace(CALM, crash_limit=2)),
    Scenario("limits pass", births_fail=True, alive=True, lanes_break=True, limits=replace(IDLE, idle_reap=0.0)),
    Scenario("no stack is wanted", lanes_break=True, limits=replace(IDLE, stack=0.0), extras=(INTERRUPT,)),
    Scenario("askers leave", calls=3, generations=1, deaths=1, time=False, askers_leave=True, limits=CALM),
    Scenario("askers leave and limits pass", generations=1, askers_leave=True, limits=IDLE),
    Scenario("a call is interrupted", lanes_break=True, limits=CALM, extras=(INTERRUPT,)),
    Scenario(
        "calls are interrupted by name", time=False, deaths=1, limits=CALM,
        extras=(_now(e.InterruptWanted(2)), _now(e.InterruptWanted(1))),
    ),
    Scenario("the sweep and the reaper", generations=1, limits=IDLE, extras=(GROWTH, _news(e.HostHoldsChanged, 1, 1))),
    Scenario("the reaper and stand-ins", limits=IDLE, calls=1, extras=(STAND_IN, _now(e.StandInsRegistered()), KILL)),
    Scenario("the reaper and prompts", generations=1, limits=IDLE, extras=(_now(e.PromptChanged("p")), _now(e.PromptChanged("")))),
    Scenario(
        "a card is tight", calls=1, generations=1, limits=IDLE,
        extras=(GROWTH, _now(e.CardTight("card", True)), _now(e.CardTight("card", False)), _now(e.PromptChanged("p"))),
    ),
    Scenario(
        "releases are asked for", time=False, lanes_break=True, limits=CALM,
        extras=(GROWTH, RELEASE, _now(e.ReleaseWanted(Want(3))), _news(e.Receipt, 2, 1)),
    ),
    Scenario("a busy worker is killed", deaths=1, time=False, limits=CALM, extras=(KILL, STAND_IN)),
    Scenario("a crash is told before the exit", deaths=1, crashes_told=True, limits=CALM),
    Scenario(
        "a crash is told and the pool is closed", calls=1, deaths=1, crashes_told=True, limits=CALM, time=False,
        extras=(SHUTDOWN, KILL, RELEASE, STAND_IN),
    ),
    Scenario("a crash is told at any moment", time=False, limits=PINGED, extras=(_news(e.CrashTold, CRASHED, "stack"), RELEASE)),
    Scenario("a lane is lost at any moment", births_fail=True, time=False, limits=PINGED, extras=(_news(e.LaneLost, "reset"), RELEASE)),
    Scenario("a tree is gone at any moment", time=False, limits=PINGED, extras=(_news(e.TreeGone, KILLED), RELEASE)),
    Scenario("a worker is pinged", lanes_break=True, deaths=1, limits=PINGED, time=False, extras=(KILL, SHUTDOWN)),
    Scenario("a pinged worker is late", lanes_break=True, askers_leave=True, limits=PINGED),
    Scenario("a pinged worker is wanted", calls=3, lanes_break=True, time=False, limits=PINGED, extras=(RELEASE, _news(e.Receipt, 2, 1))),
    Scenario(
        "a pinged worker is told things", deaths=1, time=False, limits=PINGED,
        extras=(STAND_IN, CHANGE, _now(e.StandInsRegistered()), RELEASE),
    ),
    Scenario("the pool is closed", time=False, births_fail=True, deaths=1, limits=CALM, extras=(SHUTDOWN, KILL)),
    Scenario("the pool is closed while limits pass", calls=1, lanes_break=True, askers_leave=True, limits=IDLE, extras=(SHUTDOWN,)),
    Scenario("the pool is closed on an interrupted call", alive=True, generations=1, limits=CALM, extras=(SHUTDOWN, INTERRUPT)),
    Scenario(
        "the pool is closed while it is parked", births_fail=True, calls=1,
        limits=replace(CALM, crash_limit=1), extras=(SHUTDOWN, ZYGOTE),
    ),
    Scenario("old news comes late", time=False, births_fail=True, deaths=1, old_news=True, limits=CALM),
    Scenario("a worker will not die", calls=1, wont_die=True, deaths=1, limits=CALM, extras=(KILL,)),
    Scenario(
        "a worker will not die and the pool is closed", calls=1, wont_die=True, limits=CALM, time=False,
        extras=(KILL, KILL_AGAIN, SHUTDOWN),
    ),
    Scenario("others wait for a worker that will not die", deaths=1, wont_die=True, time=False, limits=CALM, extras=(KILL,)),
    Scenario("a thread cannot be killed", deaths=1, wont_die=True, killable=False, time=False, limits=CALM, extras=(KILL, SHUTDOWN)),
    Scenario("the sources change", limits=CALM, calls=1, extras=(CHANGE, _now(e.SourceChanged("line 3: no")), STAND_IN, NO_STAND_IN)),
    Scenario(
        "the environment changes", wont_die=True, time=False, limits=CALM, calls=1,
        extras=(ZYGOTE, _now(e.EnvChanged()), _now(e.ZygoteLost()), SHUTDOWN, KILL),
    ),
    Scenario("the sources change between calls", limits=CALM, extras=(CHANGE,)),
    Scenario("the sources change in the middle of a prompt", generations=1, calls=1, limits=CALM, extras=(
        CHANGE, _now(e.SourceChanged("line 3: no")), _now(e.PromptChanged("p")), _now(e.PromptChanged("")))),
    Scenario("a worker has served enough calls", limits=replace(CALM, max_calls=1), time=False, calls=3, extras=(GROWTH, RELEASE)),
    Scenario("a worker has grown too large", time=False, lanes_break=True, limits=PINGED, extras=(
        _news(e.Outgrown, 9), _news(e.HostHoldsChanged, 1, 0), RELEASE)),
    Scenario("a device cannot be shared", time=False, lanes_break=True, limits=PINGED, extras=(_news(e.Demoted, "it differs"), RELEASE)),
    Scenario("a change of the sources has settled", time=False, limits=CALM, extras=(_now(e.SourceChanged(settled=True)), STAND_IN)),
    Scenario(
        "the host tells much", generations=1, births_fail=True, time=False, limits=replace(PINGED, crash_limit=1),
        extras=(ZYGOTE, _now(e.ZygoteLost()), _now(e.EnvChanged()), SHUTDOWN, RELEASE),
    ),
    Scenario(
        "the host tells more", generations=1, births_fail=True, deaths=1, time=False, limits=replace(PINGED, crash_limit=1),
        extras=(_now(e.CardTight("card", True)), _now(e.PromptChanged("p")), STAND_IN, _now(e.StandInsRegistered()), SHUTDOWN),
    ),
)
