"""Plugins of the orchestrator: agents, blockers and filters are found, clashes and mistakes are left out by name."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path

import pytest

from comfy_env.hooks.agents import GROUP, AgentPlugins
from comfy_env.hooks.sources import Offer
from comfy_env.hooks.specs import hookimpl
from comfy_env.orchestrator.blockers import PluginBlockers
from comfy_env.orchestrator.waiting import woken
from comfy_env.testing.echo import EchoPlugin
from comfy_env.values import AgentSpec, Busy, EnvPlan, Idle, Unknown

from .kit import run


def found(*plugins: tuple[str, object], installed: tuple[Offer, ...] = ()) -> AgentPlugins:
    return AgentPlugins(plugins, find=lambda group: installed if group == GROUP else ())


class One:
    """An agent, a blocker and a filter."""

    def __init__(self, name: str = "one") -> None:
        self.name = name

    @hookimpl
    def comfy_env_agents(self):
        return [AgentSpec(self.name, EnvPlan.existing(sys.executable, self.name), "m:f")]

    @hookimpl
    def comfy_env_idle_blockers(self):
        return {"b": Idle}

    @hookimpl
    def comfy_env_update_filter(self, kind, target):
        return f"no {kind} {target}" if target == "bad" else None


def test_agents_and_blockers_are_found_by_name_and_owner():
    plugins = found(("first", One()), ("second", One("two")))
    assert sorted(plugins.agents) == ["one", "two"]
    assert sorted(plugins.blockers) == ["first of first/b", "second of second/b"]


def test_an_installed_plugin_comes_in_through_the_group():
    offer = Offer("echo", "comfy_env.testing.echo:plugin", "a package")
    assert sorted(found(installed=(offer,)).agents) == ["echo", "echo-gpu", "echo-safe"]


def test_a_name_that_is_taken_stays_with_the_first_and_both_owners_are_named(caplog):
    plugins = found(("first", One()), ("second", One()))
    assert list(plugins.agents) == ["one"]
    assert "'one'" in caplog.text and "first" in caplog.text and "second" in caplog.text


def test_the_first_reason_not_to_take_a_target_is_told():
    plugins = found(("first", One()))
    assert plugins.refusal("tree", "good") == "" and plugins.refusal("tree", "bad") == "first of first: no tree bad"


class Misspelled:
    @hookimpl
    def comfy_env_agent(self):
        return []


class WrongArgument:
    @hookimpl
    def comfy_env_update_filter(self, kind, version):
        return None


class Raises:
    @hookimpl
    def comfy_env_agents(self):
        raise ValueError("on purpose")


class Nonsense:
    @hookimpl
    def comfy_env_agents(self):
        return ["no agent"]


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (Misspelled(), "comfy_env_agents"),
        (WrongArgument(), "no argument 'version'"),
        (Raises(), "on purpose"),
        (Nonsense(), "no AgentSpec"),
    ],
)
def test_a_plugin_that_is_wrong_is_left_out_with_its_reason_and_the_others_stay(plugin: object, told: str, caplog):
    assert list(found(("bad", plugin), ("good", One())).agents) == ["one"]
    assert told in caplog.text


def test_a_plugin_that_cannot_be_imported_is_left_out(caplog):
    assert list(found(("good", One()), installed=(Offer("gone", "no.such.module:x", "a package"),)).agents) == ["one"]
    assert "no.such.module" in caplog.text


def test_the_echo_agents_cover_the_switches_an_agent_has(tmp_path: Path):
    agents = {spec.name: spec for spec in EchoPlugin(tmp_path / "ledger").comfy_env_agents()}
    assert agents["echo-gpu"].shares_gpu and agents["echo-safe"].replay_safe
    assert dict(agents["echo"].plan.variables) == {"COMFY_ENV_ECHO_LEDGER": str(tmp_path / "ledger")}


# ---- asking blockers


def asked(asks: dict, limit: float = 5.0, times: int = 1, now=time.monotonic) -> dict:
    async def story():
        blockers = PluginBlockers(asks, limit, now)
        for _ in range(times):
            await blockers.ask()
        return {blocker.name: blocker.verdict for blocker in blockers.blockers()}

    return run(story)


def raises():
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("ask", "verdict"),
    [
        (Idle, Idle()),
        (lambda: Busy("working"), Busy("working", 7.0)),
        (raises, Unknown("ValueError: broken", 7.0)),
        (lambda: "idle", Unknown("it answered 'idle'", 7.0)),
        (lambda: None, Unknown("it answered None", 7.0)),
    ],
)
def test_what_a_blocker_answers_is_judged(ask, verdict):
    assert asked({"x": ask}, now=lambda: 7.0) == {"x": verdict}


def test_one_that_is_not_asked_yet_is_unknown():
    async def story():
        return [blocker.verdict for blocker in PluginBlockers({"x": Idle}, 1, lambda: 3.0).blockers()]

    assert run(story) == [Unknown("not asked yet")], "it is unknown, but not since long"


def test_one_that_stays_busy_is_busy_since_it_began():
    clock = iter(range(100))
    assert asked({"x": lambda: Busy("a")}, times=3, now=lambda: float(next(clock)))["x"].since == 0.0


def test_one_that_hangs_keeps_the_others_waiting_no_longer_than_the_limit_and_is_not_asked_twice():
    release, calls = threading.Event(), []

    def hangs():
        calls.append(1)
        release.wait(20)
        return Idle()

    async def story():
        blockers = PluginBlockers({"hangs": hangs, "quick": Idle}, 0.1, time.monotonic)
        begun = time.monotonic()
        for _ in range(3):
            await blockers.ask()
        assert time.monotonic() - begun < 5 and len(calls) == 1
        said = {blocker.name: blocker.verdict for blocker in blockers.blockers()}
        assert isinstance(said["hangs"], Unknown) and said["quick"] == Idle()
        release.set()
        for _ in range(200):
            await blockers.ask()
            if {blocker.name: blocker.verdict for blocker in blockers.blockers()}["hangs"] == Idle():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it is never heard again")

    run(story)


# ---- waiting


def test_a_cancellation_that_meets_the_event_is_not_forgotten():
    async def story():
        for late in (False, True):
            event = asyncio.Event()
            waiter = asyncio.create_task(woken(event, 10))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            event.set()
            if late:
                await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter

    run(story)


def test_an_event_that_does_not_come_is_waited_for_no_longer_than_asked():
    async def story():
        event = asyncio.Event()
        assert not await woken(event, 0.01)
        event.set()
        assert await woken(event, 0.01)

    run(story)
