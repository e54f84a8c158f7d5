"""What plugins bring to the orchestrator: agents, reasons not to restart now, reasons not to take an update.

A plugin is any object with some of these hooks, found through the entry-point group `comfy_env.agents`. One that is
wrong is left out with its reason; the service and the other plugins go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from comfy_env.errors import BackendError
from comfy_env.hooks import sources
from comfy_env.hooks.checks import PREFIX, Manager
from comfy_env.hooks.sources import Offer
from comfy_env.hooks.specs import hookspec
from comfy_env.values import AgentSpec, Verdict

log = logging.getLogger(__name__)

GROUP = "comfy_env.agents"
Blockers = Mapping[str, Callable[[], Verdict]]


class Agents:
    """Any of these may be implemented by any plugin of group `comfy_env.agents`."""

    @hookspec
    def comfy_env_agents(self) -> Iterable[AgentSpec]:
        """Return the agents this plugin offers.

        Called once, while the service starts; must not start or open anything. A name that is taken is refused.
        """

    @hookspec
    def comfy_env_idle_blockers(self) -> Blockers:
        """Return functions by name that say whether a restart would cost somebody something now.

        Called once, while the service starts. Each function is asked on a thread of its own whenever a restart waits; one
        that does not answer within `COMFY_ENV_ORCH_BLOCKER_REPLY_S`, raises or returns something else counts as unknown.
        """

    @hookspec
    def comfy_env_update_filter(self, kind: str, target: str) -> str | None:
        """Return why a restart must not be armed by itself for this target ("tree" or "version"), or None.

        Called once per target. What a person asks for is not filtered.
        """


class AgentPlugins:
    """The plugins of one service: those given by code as (owner, object), and those installed."""

    def __init__(self, given: Iterable[tuple[str, Any]] = (), *, find: sources.Find = sources.installed) -> None:
        self._given = tuple(Offer(owner, owner, owner, value=value) for owner, value in given)
        self._find = find

    @cached_property
    def agents(self) -> dict[str, AgentSpec]:
        """Every agent by name; of a name that is offered twice the first stays, and the clash is logged with both owners."""
        found: dict[str, AgentSpec] = {}
        owners: dict[str, str] = {}
        for owner, spec in self._answers("agents"):
            if not isinstance(spec, AgentSpec):
                log.error("%s: comfy_env_agents gave %r, which is no AgentSpec", owner, spec)
            elif spec.name in found:
                log.error("the agent %r of %s is taken by %s", spec.name, owner, owners[spec.name])
            else:
                found[spec.name], owners[spec.name] = spec, owner
        return found

    @cached_property
    def blockers(self) -> dict[str, Callable[[], Verdict]]:
        """Every blocker by the name people are shown."""
        pairs = ((owner, name, ask) for owner, blockers in self._replies("idle_blockers") for name, ask in dict(blockers).items())
        return {f"{owner}/{name}": ask for owner, name, ask in pairs}

    def refusal(self, kind: str, target: str) -> str:
        """Return the first reason not to take a target, '' where nobody has one."""
        reasons = (f"{owner}: {reason}" for owner, reason in self._replies("update_filter", kind=kind, target=target) if reason)
        return next(reasons, "")

    @cached_property
    def _manager(self) -> Manager:
        manager = Manager((Agents,))
        for offer in (*self._given, *self._find(GROUP)):
            try:
                manager.admit(offer.load(), f"{offer.name} of {offer.owner}", "observer")
            except BackendError:
                log.exception("a plugin of the orchestrator is left out")
        return manager

    def _answers(self, hook: str) -> Iterator[tuple[str, Any]]:
        return ((owner, item) for owner, items in self._replies(hook) for item in items)

    def _replies(self, hook: str, **facts: Any) -> list[tuple[str, Any]]:
        """Return (owner, answer) of every plugin that has the hook; one that raises is logged and left out."""
        found = []
        for impl in reversed(getattr(self._manager.hook, PREFIX + hook).get_hookimpls()):
            try:
                found.append((impl.plugin_name, impl.function(*(facts[name] for name in impl.argnames))))
            except Exception:  # a plugin is somebody else's code: the service goes on without its answer
                log.exception("%s: %s%s raised", impl.plugin_name, PREFIX, hook)
        return [(owner, answer) for owner, answer in found if answer is not None]
