"""The verbs of a backend that also makes environments; all optional.

A backend without them serves plans that name an existing interpreter. They run on the thread that asked for the build,
never while a host imports a pack.
"""

from __future__ import annotations

from collections.abc import Callable

from comfy_env.hooks.specs import hookspec
from comfy_env.values import BuildStep, Changes, EnvPlan, EnvState

Report = Callable[[BuildStep], None]
"""Hears each step of a build; raising `BuildCancelled` from it cancels the build."""


class Provision:
    """What a backend that makes environments implements."""

    @hookspec(firstresult=True)
    def comfy_env_inspect(self, plan: EnvPlan, probe: bool) -> EnvState:
        """Return the state of the plan's environment.

        `probe=True` runs its interpreter and imports what the plan says. `probe=False` is asked before each spawn and
        must answer within milliseconds, from the stamp and the file system alone. The state's `interpreter` is what a
        worker is started with.
        """

    @hookspec(firstresult=True)
    def comfy_env_plan(self, plan: EnvPlan) -> Changes:
        """Return what a build would change, without changing anything."""

    @hookspec(firstresult=True)
    def comfy_env_build(self, plan: EnvPlan, progress: Report) -> EnvState:
        """Make the environment and return its state; idempotent.

        Built beside the old one and swapped in by rename: a build that ends half-way leaves the old one usable. Calls
        `progress` at least every 10 s. Raises `BuildFailed` with the log file, `BuildCancelled`.
        """

    @hookspec(firstresult=True)
    def comfy_env_remove(self, plan: EnvPlan) -> EnvState:
        """Remove the environment and everything made for it; return its state afterwards."""
