"""One build from lock to swap: the same for every backend that makes environments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from comfy_env.envs import locks, paths, probes, stamps, states, swap
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed
from comfy_env.packs.redact import clean
from comfy_env.settings import Settings
from comfy_env.values import BuildStep, EnvPlan, EnvState, EnvStatus

Report = Callable[[BuildStep], None]


@dataclass(frozen=True)
class Made:
    """What a backend made: the interpreter inside the build's folder, where it came from, and by which tool."""

    interpreter: Path
    base: str
    tool: str


Maker = Callable[[Path, Journal], Made]
"""Makes the environment in a folder that does not exist yet; raises BuildFailed, PlanError or what `say` raised."""


def build(plan: EnvPlan, settings: Settings, wanted: str, report: Report, make: Maker) -> EnvState:
    """Build the plan's environment unless it is there, and return its state.

    The environment in use stays as it is until the new one has been made and probed. Raises BuildFailed, BuildCancelled.
    """
    try:
        with _turn(plan, settings, report):
            state = states.inspect(plan, settings, wanted, probe=True)
            if state.status is EnvStatus.READY:
                report(BuildStep(plan.key, "it is built already", 1.0))
                return state
            return _build(plan, settings, wanted, report, make)
    except OSError as error:
        raise BuildFailed(f"the environment could not be built: {clean(str(error))}", env=plan.key) from error


def remove(plan: EnvPlan, settings: Settings, wanted: str) -> EnvState:
    """Remove the environment, its record and its log; return its state afterwards."""
    with _turn(plan, settings, lambda step: None, "remove"):
        folder = paths.env_folder(plan, settings)
        (folder / stamps.FILE).unlink(missing_ok=True)   # first of all: half a folder must not look like an environment
        for path in (folder, paths.record_file(plan, settings), paths.log_file(plan, settings)):
            if os.path.lexists(path):
                swap.delete(path)
        locks.discard(paths.lock_file(plan, settings))
    return states.inspect(plan, settings, wanted, probe=False)


def _turn(plan: EnvPlan, settings: Settings, report: Report, doing: str = "build"):  # type: ignore[no-untyped-def]
    def waiting(holder: locks.Holder) -> None:
        report(BuildStep(plan.key, f"waiting for {holder}"))

    return locks.held(paths.lock_file(plan, settings), doing, waiting)


def _build(plan: EnvPlan, settings: Settings, wanted: str, report: Report, make: Maker) -> EnvState:
    folder = paths.env_folder(plan, settings)
    swap.clear(folder)
    target = swap.new_build(folder)
    with Journal(plan.key, paths.log_file(plan, settings), report) as journal:
        try:
            made = make(target, journal)
            journal.say("checking that it works", 0.9)
            stamp = _stamp(plan, folder, target, wanted, made, journal)
            swap.adopt(folder, stamp)
        except BaseException:   # also an interrupt: nothing half-made stays
            swap.delete(target)
            _drop_if_empty(folder)
            raise
        paths.record_file(plan, settings).write_text(stamp.folder, encoding="utf-8")
        swap.clear(folder)
        journal.say("ready", 1.0)
    return states.inspect(plan, settings, wanted, probe=False)


def _stamp(plan: EnvPlan, folder: Path, target: Path, wanted: str, made: Made, journal: Journal) -> stamps.Stamp:
    facts = probes.probe(made.interpreter, plan.dependencies)
    if facts.trouble:
        raise journal.failure(f"the environment was built but does not work: {facts.trouble}")
    return stamps.Stamp(
        key=plan.key, plan=wanted, folder=os.path.realpath(folder), build=target.name,
        interpreter=os.path.relpath(made.interpreter, target), python=facts.version, base=made.base, tool=made.tool,
        built=time.strftime("%Y-%m-%dT%H:%M:%S%z"), packages=facts.packages,
    )


def _drop_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
