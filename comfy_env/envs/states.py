"""The state of an environment: at once from stamp and file system, or from a real probe that runs its interpreter."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from comfy_env.envs import interpreters, locks, paths, probes, stamps
from comfy_env.envs.stamps import Stamp
from comfy_env.packs import pythons, requirements
from comfy_env.packs.wrong import Wrong
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan, EnvState, EnvStatus

RENAME = "name another interpreter in the plan"


def inspect(plan: EnvPlan, settings: Settings, wanted: str, probe: bool) -> EnvState:
    """Return the state; ``wanted`` is the plan's hash as a build would stamp it now."""
    state = existing(plan) if plan.interpreter else _from_stamp(plan, settings, wanted)
    if probe and state.status in (EnvStatus.READY, EnvStatus.STALE):
        return _probed(plan, state)
    return state


def existing(plan: EnvPlan) -> EnvState:
    """Return the state of an interpreter that is used as it is, without running it."""
    path = plan.interpreter
    assert path is not None
    if path.is_dir():
        return EnvState(plan.key, EnvStatus.BROKEN, path, reason=f"{path} is a folder and no interpreter", fix=RENAME)
    if not path.is_file():
        return EnvState(plan.key, EnvStatus.MISSING, path, reason=f"there is no interpreter {path}", fix=RENAME)
    if not os.access(path, os.X_OK):
        return EnvState(plan.key, EnvStatus.BROKEN, path, reason=f"{path} cannot be executed", fix=RENAME)
    return EnvState(plan.key, EnvStatus.READY, path)


def fix_of(plan: EnvPlan) -> str:
    """Return the command that builds the plan's environment."""
    if plan.pack is not None and plan.pack.folder is not None:
        return f"comfy-env build {shlex.quote(str(plan.pack.folder))}"
    return "WorkerPool.build(plan), or comfy-env build FOLDER where a pack declares it"


def _from_stamp(plan: EnvPlan, settings: Settings, wanted: str) -> EnvState:
    folder = paths.env_folder(plan, settings)
    stamp, problem = stamps.read(folder)
    if problem:
        return _state(plan, EnvStatus.BROKEN, folder, problem)
    if stamp is None:
        return _absent(plan, settings, folder)
    state = _judged(plan, folder, stamp, wanted)
    if state.status is not EnvStatus.READY:
        builder = locks.holder(paths.lock_file(plan, settings))
        return replace(state, reason=f"{state.reason}; being built by {builder}") if builder else state
    return state


def _absent(plan: EnvPlan, settings: Settings, folder: Path) -> EnvState:
    builder = locks.holder(paths.lock_file(plan, settings))
    if builder:
        return _state(plan, EnvStatus.BUILDING, folder, f"being built by {builder}")
    if paths.record_file(plan, settings).exists() and not folder.exists():
        return _state(plan, EnvStatus.MOVED, folder, f"it was built, but {folder} was moved away or deleted since")
    log = paths.log_file(plan, settings)
    failed = f"; the log of a build that did not end well is {log}" if log.exists() else ""
    return _state(plan, EnvStatus.MISSING, folder, f"it has not been built{failed}")


def _judged(plan: EnvPlan, folder: Path, stamp: Stamp, wanted: str) -> EnvState:
    interpreter = folder / stamp.build / stamp.interpreter
    versions = (("python", stamp.python), *sorted((name, stamp.packages[name]) for name in _listed(plan) if name in stamp.packages))
    here = EnvState(plan.key, EnvStatus.READY, interpreter, folder, versions=versions, provider=stamp.tool)
    if stamp.folder != os.path.realpath(folder):
        reason = f"it was built at {stamp.folder} and was moved or copied to {folder}"
        return replace(here, status=EnvStatus.MOVED, reason=reason, fix=fix_of(plan))
    if not os.access(interpreter, os.X_OK):
        gone = f"; it was made from {stamp.base}" if os.path.lexists(interpreter) else ""
        reason = f"its interpreter {interpreter} does not work any more{gone}"
        return replace(here, status=EnvStatus.BROKEN, reason=reason, fix=fix_of(plan))
    if stamp.plan != wanted:
        return replace(here, status=EnvStatus.STALE, reason="its declaration changed since it was built", fix=fix_of(plan))
    if not interpreters.wanted(plan).contains(stamp.python):
        reason = f"it has Python {stamp.python}, and its declaration wants {plan.python or 'another'}"
        return replace(here, status=EnvStatus.STALE, reason=reason, fix=fix_of(plan))
    return here


def _listed(plan: EnvPlan) -> set[str]:
    names = {"torch"}
    for line in plan.dependencies:
        try:
            names.add(requirements.name_of(requirements.check(line, source_builds=True)))
        except Wrong:
            names.discard("")   # a line that breaks the rules was never installed; building says why
    return names


def _probed(plan: EnvPlan, state: EnvState) -> EnvState:
    assert state.interpreter is not None
    facts = probes.probe(state.interpreter, plan.dependencies if state.status is EnvStatus.READY else ())
    if facts.trouble or _too_old(facts.version):
        trouble = facts.trouble or f"it is Python {facts.version}; workers need Python 3.{pythons.FLOOR} or newer"
        fix = RENAME if plan.interpreter else fix_of(plan)
        return replace(state, status=EnvStatus.BROKEN, reason=f"{state.interpreter}: {trouble}", fix=fix)
    return replace(state, versions=state.versions or (("python", facts.version),))


def _too_old(version: str) -> bool:
    return bool(version) and Version(version) < Version(f"3.{pythons.FLOOR}")


def _state(plan: EnvPlan, status: EnvStatus, folder: Path, reason: str) -> EnvState:
    return EnvState(plan.key, status, folder=folder, reason=reason, fix=fix_of(plan))
