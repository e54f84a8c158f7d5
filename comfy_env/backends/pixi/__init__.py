"""Workers in conda environments: made by a real pixi, else by py-rattler; one that pixi made in the pack is used as it is.

Nothing is written into the pack's folder. A worker is started by the environment's own interpreter: no shell and no
tool stays in between.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

from comfy_env.backends.pixi import activation, cli, given, kept, prefixes, providers, rattling, seen
from comfy_env.backends.pixi.active import Activations
from comfy_env.backends.pixi.making import Making
from comfy_env.backends.provisioning import ProvisioningBackend
from comfy_env.envs import cuda_wheels, sources, stamps, tool_env
from comfy_env.envs.build import Made
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed
from comfy_env.hooks import hookimpl
from comfy_env.hooks.provision import Report
from comfy_env.packs import pixi_manifest
from comfy_env.settings import Settings
from comfy_env.values import BuildStep, Changes, EnvPlan, EnvState, EnvStatus, Launch

_MAKERS = {providers.PIXI: cli.make, providers.RATTLER: rattling.make}


class PixiBackend(ProvisioningBackend):
    """One conda environment per plan."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._activations = Activations()

    def launch_for(self, launch: Launch) -> Launch:
        interpreter = self.look(launch.plan, self.settings, probe=False).interpreter
        active = self._activations.of(interpreter, launch) if interpreter else None
        return launch if active is None else replace(launch, variables=active.applied(launch.variables, dict(launch.plan.variables)))

    def look(self, plan: EnvPlan, settings: Settings, probe: bool) -> EnvState:
        """Return the state of the environment built for the plan, else of the one pixi made in the pack."""
        state = super().look(plan, settings, probe)
        if state.status is EnvStatus.MISSING and not plan.interpreter:
            made = seen.materialised(plan)
            return state if made is None else seen.as_it_is(plan, made, probe)
        return seen.described(plan, state)

    def wanted(self, plan: EnvPlan) -> str:
        own = given.digest(pixi_manifest.of_plan(plan))
        return hashlib.sha256(stamps.plan_hash(plan, cuda_wheels.asked_torch(plan)).encode() + own).hexdigest()

    def make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> Made:
        provider, why = providers.find(plan, settings)
        if provider is None:
            raise self._missing(plan, why)
        making = self._making(plan, settings, target, journal, provider)
        journal.say(f"with {provider} ({provider.path})", 0.05)
        target.mkdir()
        prefix, found = _MAKERS[provider.kind](making)
        activation.write(target, found)
        prefixes.write(target, prefixes.look(prefix))
        kept.keep(plan, settings, making.made_from, target)
        return Made(prefixes.interpreter_of(prefix), str(provider.path), str(provider))

    def changes(self, plan: EnvPlan, settings: Settings) -> Changes:
        provider, why = providers.find(plan, settings)
        if provider is None:
            raise self._missing(plan, why)
        if provider.kind == providers.PIXI:
            return seen.unsolved(plan)
        with tempfile.TemporaryDirectory(prefix="comfy-env-plan-") as scratch:
            return self._solved(plan, settings, provider, Path(scratch))

    @hookimpl
    def comfy_env_build(self, plan: EnvPlan, progress: Report) -> EnvState:
        if not plan.interpreter and providers.find(plan, self.settings)[0] is None:
            state = self.look(plan, self.settings, probe=True)
            if state.status is EnvStatus.READY:   # nobody can make one, and one that is there is used as it is
                progress(BuildStep(plan.key, f"{state.interpreter} is used as it is", 1.0))
                return state
        return seen.described(plan, super().comfy_env_build(plan, progress))

    @hookimpl
    def comfy_env_remove(self, plan: EnvPlan) -> EnvState:
        if not plan.interpreter:
            kept.drop(plan, self.settings)
        return super().comfy_env_remove(plan)

    def _missing(self, plan: EnvPlan, why: tuple[str, ...]) -> BuildFailed:
        where = seen.prefix_in_pack(plan)
        looked = f"there is no environment at {where}" if where else "the pack has no pixi manifest, so no environment of one"
        return providers.missing(plan, why, looked)

    def _making(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal, provider: providers.Provider) -> Making:
        selected = tool_env.select(tool_env.inherited())
        came_from, remark = sources.gather(plan.indexes, selected.variables)
        journal.secrets = came_from.secrets
        journal.note(f"variables left out: {', '.join(selected.dropped)}; {remark}")
        manifest = pixi_manifest.of_plan(plan)
        environment = pixi_manifest.environment_of(plan, manifest) if manifest else pixi_manifest.DEFAULT
        made_from = f"{provider.kind} {self.wanted(plan)}"
        return Making(plan, settings, target, journal, provider, manifest, environment, made_from, selected.variables, came_from)

    def _solved(self, plan: EnvPlan, settings: Settings, provider: providers.Provider, scratch: Path) -> Changes:
        with Journal(plan.key, scratch / "log", lambda step: None) as journal:
            said = rattling.plan_of(self._making(plan, settings, scratch, journal, provider), scratch)
        return seen.difference(plan, seen.about(plan, settings), said)


backend = PixiBackend()
