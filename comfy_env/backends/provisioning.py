"""The provisioning verbs of a local backend that builds environments in folders: it says only how one is made."""

from __future__ import annotations

from pathlib import Path

from comfy_env.backends.local import LocalBackend
from comfy_env.envs import build, states
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed, PlanError
from comfy_env.hooks import hookimpl
from comfy_env.hooks.provision import Report
from comfy_env.packs import requirements
from comfy_env.packs.wrong import Wrong
from comfy_env.settings import Settings
from comfy_env.values import Changes, EnvPlan, EnvState, EnvStatus


class ProvisioningBackend(LocalBackend):
    """Builds beside the environment in use and swaps; override `make`, `changes` and, where more decides, `wanted`."""

    capabilities = LocalBackend.capabilities | {"forkable"}

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings

    @property
    def settings(self) -> Settings:
        return self._settings or Settings.read()

    def with_settings(self, settings: Settings) -> ProvisioningBackend:
        """Return such a backend for given settings instead of the environment variables'."""
        return type(self)(settings)

    def wanted(self, plan: EnvPlan) -> str:
        """Return the digest of what a build would make now."""
        raise BuildFailed("this backend builds no environments", env=plan.key)

    def make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> build.Made:
        """Make the environment in the target folder, which does not exist yet."""
        raise BuildFailed("this backend builds no environments", env=plan.key)

    def changes(self, plan: EnvPlan, settings: Settings) -> Changes:
        """Return what `make` would change."""
        return Changes(plan.key)

    def look(self, plan: EnvPlan, settings: Settings, probe: bool) -> EnvState:
        """Return the state of the environment."""
        return states.inspect(plan, settings, "" if plan.interpreter else self.wanted(plan), probe)

    @hookimpl
    def comfy_env_inspect(self, plan: EnvPlan, probe: bool) -> EnvState:
        return self.look(plan, self.settings, probe)

    @hookimpl
    def comfy_env_plan(self, plan: EnvPlan) -> Changes:
        if plan.interpreter:
            return Changes(plan.key, notes=(f"{plan.interpreter} is used as it is",))
        good = checked(plan)
        state = states.inspect(plan, self.settings, self.wanted(plan), probe=True)   # what a build asks before it begins
        if state.status is EnvStatus.READY:
            return Changes(plan.key, python=dict(state.versions).get("python", ""), notes=("it is built: nothing to do",))
        return self.changes(good, self.settings)

    @hookimpl
    def comfy_env_build(self, plan: EnvPlan, progress: Report) -> EnvState:
        settings = self.settings
        if plan.interpreter:
            return _as_it_is(self.look(plan, settings, probe=True))
        good = checked(plan)
        return build.build(plan, settings, self.wanted(plan), progress, lambda target, journal: self.make(good, settings, target, journal))

    @hookimpl
    def comfy_env_remove(self, plan: EnvPlan) -> EnvState:
        if plan.interpreter:
            return self.look(plan, self.settings, probe=False)
        return build.remove(plan, self.settings, self.wanted(plan))


def checked(plan: EnvPlan) -> EnvPlan:
    """Return the plan if its requirement lines keep the rules; raises PlanError."""
    try:
        for line in plan.dependencies:
            requirements.check(line, plan.allow_source_builds)
    except Wrong as wrong:
        raise PlanError(f"{plan.source + ': ' if plan.source else ''}{wrong.what}", env=plan.key, hint=wrong.hint) from None
    return plan


def _as_it_is(state: EnvState) -> EnvState:
    if state.status is EnvStatus.READY:
        return state
    raise BuildFailed(f"the plan's own interpreter is used as it is, and {state.reason}", env=state.key, hint=state.fix)
