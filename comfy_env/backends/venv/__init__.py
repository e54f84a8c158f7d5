"""Workers in virtual environments, built with uv where it is present, else with venv and pip."""

from __future__ import annotations

from pathlib import Path

from comfy_env.backends import installers
from comfy_env.backends.installer import Installer
from comfy_env.backends.provisioning import ProvisioningBackend
from comfy_env.envs import cuda_wheels, host_comfy, host_torch, interpreters, paths, stamps
from comfy_env.envs.build import Made
from comfy_env.envs.interpreters import Found
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed, PlanError
from comfy_env.settings import Settings
from comfy_env.values import Changes, EnvPlan

_TOOLS = {"pip", "setuptools", "wheel"}


class VenvBackend(ProvisioningBackend):
    """One virtual environment per plan. A plan that names an interpreter is served by it, and nothing is built."""

    def wanted(self, plan: EnvPlan) -> str:
        if plan.conda is not None:
            raise PlanError("conda packages cannot be had in a virtual environment", env=plan.key, hint='set backend = "pixi", or drop conda')
        return stamps.plan_hash(plan, " ".join([cuda_wheels.asked_torch(plan), *host_comfy.lines(plan)]))

    def make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> Made:
        installer = installers.choose(plan, settings)
        journal.secrets = installer.secrets
        for line in installer.remarks:
            journal.note(line)
        found = _interpreter(plan, installer, journal)
        journal.say(f"Python {found.version} from {found.path}, with {installer.name}", 0.05)
        interpreter = installer.make(found, target, journal)
        journal.say("the environment is made", 0.2)
        settled = cuda_wheels.settle(plan, settings, found.version)
        wishes = host_torch.wishes(plan, settings)
        for remark in host_comfy.clashes(plan):
            journal.say(remark)
        installers.install(installer, interpreter, (*settled.lines, *host_comfy.lines(plan)), wishes, journal, indexes=settled.indexes)
        return Made(interpreter, str(found.path), installer.name)

    def changes(self, plan: EnvPlan, settings: Settings) -> Changes:
        installer = installers.choose(plan, settings)
        found, tried = interpreters.find(plan)
        wish = host_torch.likely(host_torch.wishes(plan, settings))
        if found is None:
            if not installer.downloads:
                raise interpreters.missing(plan, tried)
            notes = (f"Python {plan.python} is not on this machine; {installer.name} would try to fetch it", *wish.remarks)
            return Changes(plan.key, (*plan.dependencies, *wish.requirements), notes=notes)
        settled = cuda_wheels.settle(plan, settings, found.version)
        new = installer.resolve(found, (*settled.lines, *host_comfy.lines(plan), *wish.requirements))
        return _difference(plan, settings, new, found.version, (*wish.remarks, *host_comfy.clashes(plan)))


def _interpreter(plan: EnvPlan, installer: Installer, journal: Journal) -> Found:
    found, tried = interpreters.find(plan)
    for line in tried:
        journal.note(f"not used: {line}")
    if found is not None:
        return found
    if not installer.downloads:
        raise interpreters.missing(plan, tried)
    try:
        return installer.download(journal)
    except BuildFailed as error:
        raise interpreters.missing(plan, tried, f"{installer.name} could not fetch one either, see {journal.log}") from error


def _difference(plan: EnvPlan, settings: Settings, new: dict[str, str], python: str, notes: tuple[str, ...]) -> Changes:
    stamp, _ = stamps.read(paths.env_folder(plan, settings))
    old = {} if stamp is None else {name: version for name, version in stamp.packages.items() if name not in _TOOLS}
    install = tuple(f"{name}=={version}" for name, version in sorted(new.items()) if old.get(name) != version)
    remove = tuple(f"{name}=={version}" for name, version in sorted(old.items()) if name not in new)
    return Changes(plan.key, install, remove, python, notes=notes)


backend = VenvBackend()
