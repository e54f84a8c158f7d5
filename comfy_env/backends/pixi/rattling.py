"""Making an environment with py-rattler: a program of its own solves, locks and installs; uv or pip add the Python packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from comfy_env.backends import installers
from comfy_env.backends.pixi import activation, given, kept, prefixes, words
from comfy_env.backends.pixi.activation import Activation
from comfy_env.backends.pixi.making import Making, asked_python
from comfy_env.backends.pixi.requests import Request, answered, request
from comfy_env.envs import host_torch, probes
from comfy_env.envs.host_torch import Wish
from comfy_env.errors import BuildCancelled, BuildFailed, PlanError
from comfy_env.packs import pixi_env, requirements
from comfy_env.packs.pixi_env import PixiEnv
from comfy_env.packs.pixi_manifest import LOCK
from comfy_env.packs.pixi_platforms import here
from comfy_env.packs.wrong import Wrong
from comfy_env.values import EnvPlan

CONSTRAINTS = "conda-provides.txt"


def make(making: Making) -> tuple[Path, Activation]:
    """Make the environment and return its prefix and what activating it changes; raises BuildFailed."""
    env = wanted(making)
    if making.manifest is not None:
        given.lay(making.manifest, making.target)
    else:
        kept.take(making)
    prefix = install(making, env)
    return prefix, activate(making, env, prefix)


def install(making: Making, env: PixiEnv) -> Path:
    """Install an environment, from the lock in the build's folder where there is one, and return its prefix; raises BuildFailed."""
    prefix = prefixes.prefix_in(making.target, making.environment)
    answer = _conda(making, env, prefix)
    _python_packages(making, env, prefix, answer)
    return prefix


def wanted(making: Making) -> PixiEnv:
    """Return what the environment must hold, from the pack's manifest or the plan; raises PlanError, BuildFailed."""
    if making.manifest is not None:
        return pixi_env.read(making.manifest, making.environment, here(), making.plan.allow_source_builds)
    settled = making.settled()
    return replace(of_plan(making.plan), pypi=settled.lines, indexes=(*making.plan.indexes, *settled.indexes))


def of_plan(plan: EnvPlan) -> PixiEnv:
    """Return the conda part of a plan."""
    conda = plan.conda.dependencies if plan.conda else ()
    channels = plan.conda.channels if plan.conda and plan.conda.channels else ("conda-forge",)
    python = asked_python(plan)
    return PixiEnv("default", here(), channels, (*([f"python {python}"] if python else []), *conda))


def _conda(making: Making, env: PixiEnv, prefix: Path) -> Mapping[str, Any]:
    lock = making.target / LOCK
    asked = request(making, env, prefix, lock if lock.is_file() else None)
    return _told(making, _what(asked), asked)


def _told(making: Making, what: str, asked: Request) -> Mapping[str, Any]:
    """Run what was asked and return the answer; raises BuildFailed, or PlanError for what cannot be done of the declaration."""
    try:
        making.journal.run(what, asked.argv, making.variables, making.target)
    except BuildCancelled:
        raise
    except BuildFailed as error:
        said = answered(asked)
        if said.get("trouble") == "plan":
            raise PlanError(said["what"], env=making.plan.key, hint=error.hint, output=error.output) from None
        error.hint += f"; {kept.FORGET}" if asked.lock and making.manifest is None else ""
        error.message = what if said.get("what") else error.message   # it said why: that its program then ended is no news
        raise words.named(error, said.get("trouble", ""), said.get("what", "")) from None
    return answered(asked)


def _what(asked: Request) -> str:
    return "installing what is locked, with py-rattler" if asked.lock else "solving and installing with py-rattler"


def _python_packages(making: Making, env: PixiEnv, prefix: Path, answer: Mapping[str, Any]) -> None:
    """Install the packages of a Python index: what the lock says, else what is asked for, beside what conda provides."""
    pins = making.target / kept.PYPI
    locked = answer["pypi"]
    if locked:
        have = {canonicalize_name(package["name"]) for package in locked}
        for line in (line for line in env.pypi if canonicalize_name(Requirement(line).name) not in have):
            making.journal.say(f"{making.lock_told} does not fit its manifest, which asks for {line}; what it locks is installed")
        _add(making, env, prefix, tuple(_locked(making, package) for package in locked), (Wish(),), "--no-deps")
    elif pins.is_file():
        _add(making, env, prefix, tuple(pins.read_text(encoding="utf-8").splitlines()), (Wish(),), "--no-deps")
    else:
        _solve_python(making, env, prefix, pins)


def _solve_python(making: Making, env: PixiEnv, prefix: Path, pins: Path) -> None:
    wishes = host_torch.wishes(making.plan, making.settings)
    if not env.pypi and not any(wish.requirements for wish in wishes):
        return
    provided = probes.probe(prefixes.interpreter_of(prefix), ()).packages
    constraints = making.target / CONSTRAINTS
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(provided.items())), encoding="utf-8")
    _add(making, env, prefix, env.pypi, wishes, *(("--constraint", str(constraints)) if provided else ()))
    there = probes.probe(prefixes.interpreter_of(prefix), ()).packages
    direct: dict[str, str] = {canonicalize_name(Requirement(line).name): line for line in env.pypi if Requirement(line).url}
    lines = [direct.get(name, f"{name}=={version}") for name, version in sorted(there.items()) if provided.get(name) != version]
    pins.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _add(making: Making, env: PixiEnv, prefix: Path, lines: tuple[str, ...], wishes: tuple[Wish, ...], *more: str) -> None:
    plan = replace(making.plan, indexes=(*env.indexes, *env.find_links))
    installer = installers.choose(plan, making.settings, env.index_url)
    making.journal.secrets = (*making.journal.secrets, *installer.secrets)
    for line in installer.remarks:
        making.journal.note(line)
    try:
        installers.install(installer, prefixes.interpreter_of(prefix), lines, wishes, making.journal, more)
    except BuildCancelled:
        raise
    except BuildFailed as error:
        raise words.named(error) from None


def _locked(making: Making, package: Mapping[str, str]) -> str:
    """Return a locked Python package as a requirement; raises PlanError for one that would have to be built."""
    mark = f"#sha256={package['sha256']}" if package["sha256"] and "#" not in package["location"] else ""
    try:
        return requirements.check(f"{package['name']} @ {package['location']}{mark}", making.plan.allow_source_builds)
    except Wrong as wrong:
        raise PlanError(f"{making.lock_told}: {wrong.what}", env=making.plan.key, hint="install pixi and put it on PATH") from None


def activate(making: Making, env: PixiEnv, prefix: Path) -> Activation:
    """Return what activating the environment changes."""
    making.journal.say("finding out what activating changes")
    before = {**making.worker_variables(), "PIXI_PROJECT_ROOT": str(making.target), "PIXI_ENVIRONMENT_NAME": making.environment}
    for script in (script for script in env.scripts if not (making.target / script).is_file()):
        making.journal.say(f"the activation script {script} is not there and is passed by, as pixi does")
    scripts = tuple(making.target / script for script in env.scripts if (making.target / script).is_file())
    found, said = activation.capture(prefix, before, scripts, dict(env.variables), making.plan.key)
    for line in said.splitlines():
        making.journal.note(line)
    return found


def plan_of(making: Making, scratch: Path) -> Mapping[str, Any]:
    """Return what a build would install, solved in a scratch folder; raises BuildFailed."""
    lock = making.manifest.lock if making.manifest else None
    asked = request(replace(making, target=scratch), wanted(making), None, lock)
    return _told(replace(making, target=scratch), "solving with py-rattler", asked)


