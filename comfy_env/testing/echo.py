"""The scripted `echo` agents as a plugin of the orchestrator (`serve --agents comfy_env.testing.echo:plugin`).

Three of them, over the switches an agent has: `echo`, `echo-gpu` (shares the GPU), `echo-safe` (may be run again).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from comfy_env.hooks.specs import hookimpl
from comfy_env.values import AgentSpec, EnvPlan

GUEST = Path(__file__).with_name("guest")
TARGET = "echo_agent:answer"


class EchoPlugin:
    """Offers the echo agents; `ledger` is a file in which every message they are given is written down."""

    def __init__(self, ledger: Path | None = None) -> None:
        self._variables = {"COMFY_ENV_ECHO_LEDGER": str(ledger)} if ledger else {}

    @hookimpl
    def comfy_env_agents(self) -> Iterable[AgentSpec]:
        return (
            self._agent("echo"),
            self._agent("echo-gpu", shares_gpu=True),
            self._agent("echo-safe", replay_safe=True),
        )

    def _agent(self, name: str, **switches: bool) -> AgentSpec:
        plan = EnvPlan.existing(sys.executable, name, import_roots=(GUEST,), variables=self._variables)
        return AgentSpec(name, plan, TARGET, about="does what its message says", **switches)


plugin = EchoPlugin()
