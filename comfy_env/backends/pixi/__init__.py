"""Workers in conda environments: made by a real pixi, else by py-rattler; one that pixi made in the pack is used as it is.

Nothing is written into the pack's folder. A worker is started by the environment's own interpreter: no shell and no
tool stays in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from comfy_env.backends.pixi import activation, cli, given, kept, prefixes, providers, rattling, seen
from comfy_env.backends.pixi.active import Activations
from comfy_env.backends.pixi.making import Making, comfy_lines
from comfy_env.backends.provisioning import ProvisioningBackend
from comfy_env.envs import cuda_wheels, host_comfy, sources, stamps, tool_env
from comfy_env.envs.build import Made
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed, ComfyEnvError
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
        with _about(plan):
            own = given.digest(pixi_manifest.of_plan(plan))
        return hashlib.sha256(stamps.plan_hash(plan, _added(plan)).encode() + own).hexdigest()

    def make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> Made:
        with _about(plan):
            return self._make(plan, settings, target, journal)

    def _make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> Made:
        provider, why = providers.find(plan, settings)
        if provider is None:
            raise self._missing(plan, why)
        making = self._making(plan, settings, target, journal, provider)
        journal.say(f"with {provider} ({provider.path})", 0.05)
        for remark in host_comfy.clashes(plan):
            journal.say(remark)
        target.mkdir()
        prefix, found = _MAKERS[provider.kind](making)
        activation.write(target, found)
        prefixes.write(target, prefixes.look(prefix))
        kept.keep(making)
        return Made(prefixes.interpreter_of(prefix), str(provider.path), str(provider))

    def changes(self, plan: EnvPlan, settings: Settings) -> Changes:
        provider, why = providers.find(plan, settings)
        if provider is None:
            raise self._missing(plan, why)
        if provider.kind == providers.PIXI:
            return _with_clashes(plan, seen.unsolved(plan))
        with _about(plan), tempfile.TemporaryDirectory(prefix="comfy-env-plan-") as scratch:
            return _with_clashes(plan, self._solved(plan, settings, provider, Path(scratch)))

    @hookimpl
    def comfy_env_build(self, plan: EnvPlan, progress: Report) -> EnvState:
        if not plan.interpreter and self._is_helpless(plan):
            state = self.look(plan, self.settings, probe=True)
            if state.status is EnvStatus.READY and state.provider == seen.BY_HAND:   # nobody can make one: it is used as it is
                progress(BuildStep(plan.key, f"{state.interpreter} is used as it is", 1.0))
                return state
        return seen.described(plan, super().comfy_env_build(plan, progress))

    @hookimpl
    def comfy_env_remove(self, plan: EnvPlan) -> EnvState:
        if plan.interpreter:
            return super().comfy_env_remove(plan)
        state = super().comfy_env_remove(plan)
        kept.drop(plan, self.settings)
        made = seen.materialised(plan)
        return seen.not_ours(plan, made) if made else state

    def _is_helpless(self, plan: EnvPlan) -> bool:
        """Return whether nobody here can make an environment."""
        with contextlib.suppress(BuildFailed):   # one that cannot serve is told of when it is asked to make one
            return providers.find(plan, self.settings)[0] is None
        return False

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
        made_from = f"{provider.kind} {plan.python or ''} {self.wanted(plan)}"
        variables = _trusting(selected.variables, came_from.pip.get("cert", ""))
        return Making(plan, settings, target, journal, provider, manifest, environment, made_from, variables, came_from)

    def _solved(self, plan: EnvPlan, settings: Settings, provider: providers.Provider, scratch: Path) -> Changes:
        with Journal(plan.key, scratch / "log", lambda step: None) as journal:
            try:
                said = rattling.plan_of(self._making(plan, settings, scratch, journal, provider), scratch)
            except ComfyEnvError as error:   # the log goes with the scratch folder, and the error holds its last lines
                error.hint = "; ".join(part for part in error.hint.split("; ") if str(journal.log) not in part)
                raise
        return seen.difference(plan, seen.about(plan, settings), said)


def _added(plan: EnvPlan) -> str:
    """Return what the host's own packages add to what a plan asks for."""
    return " ".join([cuda_wheels.asked_torch(plan), *comfy_lines(plan)])


def _with_clashes(plan: EnvPlan, changes: Changes) -> Changes:
    return replace(changes, notes=(*changes.notes, *host_comfy.clashes(plan)))


def _trusting(variables: Mapping[str, str], cert: str) -> dict[str, str]:
    """Return the variables with the certificates that other tools were given, under the name pixi and py-rattler read."""
    given = [variables.get("SSL_CERT_FILE", ""), variables.get("REQUESTS_CA_BUNDLE", ""), variables.get("CURL_CA_BUNDLE", ""), cert]
    files = [file for file in given if file and Path(file).is_file()]
    return {**variables, "SSL_CERT_FILE": files[0]} if files else dict(variables)


@contextlib.contextmanager
def _about(plan: EnvPlan) -> Iterator[None]:
    """Say which environment an error is about: one that is found in a manifest knows file and line only."""
    try:
        yield
    except ComfyEnvError as error:
        error.env = error.env or plan.key
        raise


backend = PixiBackend()
