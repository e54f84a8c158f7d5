"""Workers in virtual environments, built with uv where it is present, else with venv and pip."""

from __future__ import annotations

from pathlib import Path

from comfy_env.backends.provisioning import ProvisioningBackend
from comfy_env.backends.venv import uv
from comfy_env.backends.venv.installer import Installer
from comfy_env.backends.venv.pip import Pip
from comfy_env.envs import host_torch, interpreters, paths, stamps
from comfy_env.envs.build import Made
from comfy_env.envs.interpreters import Found
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed
from comfy_env.settings import Settings
from comfy_env.values import Changes, EnvPlan

_TOOLS = {"pip", "setuptools", "wheel"}


class VenvBackend(ProvisioningBackend):
    """One virtual environment per plan. A plan that names an interpreter is served by it, and nothing is built."""

    def wanted(self, plan: EnvPlan) -> str:
        return stamps.plan_hash(plan, host_torch.host_version() if plan.torch == "host" else "")

    def make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> Made:
        installer = _installer(plan, settings)
        journal.secrets = installer.secrets
        for line in installer.remarks:
            journal.note(line)
        found = _interpreter(plan, installer, journal)
        journal.say(f"Python {found.version} from {found.path}, with {installer.name}", 0.05)
        interpreter = installer.make(found, target, journal)
        journal.say("the environment is made", 0.2)
        _install(plan, host_torch.wishes(plan, settings), installer, found, interpreter, journal)
        return Made(interpreter, str(found.path), installer.name)

    def changes(self, plan: EnvPlan, settings: Settings) -> Changes:
        installer = _installer(plan, settings)
        found, tried = interpreters.find(plan)
        wish = host_torch.wishes(plan, settings)[-1]
        if found is None:
            if not installer.downloads:
                raise interpreters.missing(plan, tried)
            notes = (f"Python {plan.python} is not on this machine; {installer.name} would try to fetch it", *wish.remarks)
            return Changes(plan.key, (*plan.dependencies, *wish.requirements), notes=notes)
        new = installer.resolve(found, (*plan.dependencies, *wish.requirements))
        return _difference(plan, settings, new, found.version, wish.remarks)


def _installer(plan: EnvPlan, settings: Settings) -> Installer:
    program = uv.find(settings)
    return uv.Uv(plan, settings, *program) if program else Pip(plan, settings)


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


def _install(
    plan: EnvPlan, wishes: tuple[host_torch.Wish, ...], installer: Installer, found: Found, interpreter: Path, journal: Journal
) -> None:
    """Install the dependencies with the first wish for torch that can be had."""
    for number, wish in enumerate(wishes, start=1):
        for remark in wish.remarks:
            journal.say(remark)
        lines = (*plan.dependencies, *wish.requirements)
        what = f"installing {len(lines)} requirements for Python {found.version}"
        try:
            if lines:
                installer.install(interpreter, lines, wish.indexes, what, journal)
            return
        except BuildFailed as error:
            if number == len(wishes):
                raise
            journal.say(f"not to be had: {error.message}")


def _difference(plan: EnvPlan, settings: Settings, new: dict[str, str], python: str, notes: tuple[str, ...]) -> Changes:
    stamp, _ = stamps.read(paths.env_folder(plan, settings))
    old = {} if stamp is None else {name: version for name, version in stamp.packages.items() if name not in _TOOLS}
    install = tuple(f"{name}=={version}" for name, version in sorted(new.items()) if old.get(name) != version)
    remove = tuple(f"{name}=={version}" for name, version in sorted(old.items()) if name not in new)
    return Changes(plan.key, install, remove, python, notes=notes)


backend = VenvBackend()
