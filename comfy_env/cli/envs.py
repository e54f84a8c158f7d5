"""`comfy-env plan`, `build` and `remove`: each environment is treated alone, so one that fails never blocks another."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from comfy_env.cli.choose import chosen
from comfy_env.cli.conflicts import Conflict, conflicts
from comfy_env.cli.exits import Exit, exit_code
from comfy_env.cli.screen import Screen, error_facts, in_bytes
from comfy_env.cli.snapshot import after_build
from comfy_env.cli.status import as_data
from comfy_env.errors import ComfyEnvError
from comfy_env.pool import WorkerPool
from comfy_env.runner.console import watching
from comfy_env.values import BuildStep, Changes, EnvPlan, EnvState, EnvStatus


def plan(options: argparse.Namespace, screen: Screen) -> Exit:
    """Show what building the chosen environments would change."""
    plans = chosen(options)
    with WorkerPool() as pool:
        changes = [pool.plan(plan) for plan in plans]
    found = conflicts(plans)
    screen.document({"envs": [_changes_data(change) for change in changes], "conflicts": [conflict._asdict() for conflict in found]})
    screen.table(("ENV", "PYTHON", "INSTALL", "REMOVE", "DOWNLOAD", "NOTES"), [_changes_row(change) for change in changes])
    screen.say(*_conflict_lines(found))
    return Exit.DONE


def _changes_data(change: Changes) -> dict[str, Any]:
    return {"key": change.key, "python": change.python, "install": list(change.install), "remove": list(change.remove),
            "download_bytes": change.download_bytes, "notes": list(change.notes)}


def _changes_row(change: Changes) -> tuple[str, ...]:
    listed = (", ".join(change.install), ", ".join(change.remove), in_bytes(change.download_bytes), "; ".join(change.notes))
    return change.key, change.python, *listed


def _conflict_lines(found: list[Conflict]) -> Iterable[str]:
    return (f"{c.one} and {c.other} cannot share an environment: {c.what} {c.one_wants} against {c.other_wants}" for c in found)


def build(options: argparse.Namespace, screen: Screen) -> Exit:
    """Build the chosen environments, one after another."""
    with WorkerPool() as pool, watching(screen.err) as watcher:
        return _each(options, screen, lambda plan: _built(pool, plan, watcher.building, screen), EnvStatus.READY)


def _built(pool: WorkerPool, plan: EnvPlan, progress: Callable[[BuildStep], None], screen: Screen) -> EnvState:
    state = pool.build(plan, progress)
    if state.status is EnvStatus.READY and plan.root is not None and (plan.root / "__init__.py").is_file():
        why = after_build(plan)
        if why:
            screen.note(f"{plan.key} is built, but its nodes could not be described: {why}")
    return state


def remove(options: argparse.Namespace, screen: Screen) -> Exit:
    """Remove the chosen environments."""
    with WorkerPool() as pool:
        return _each(options, screen, pool.remove, EnvStatus.MISSING)


def _each(options: argparse.Namespace, screen: Screen, do: Callable[[EnvPlan], EnvState], wanted: EnvStatus) -> Exit:
    """Do something to every chosen environment; the worst ending is the command's."""
    endings = [_ending(plan, do, wanted, screen) for plan in chosen(options)]
    screen.document({"envs": [ending.data for ending in endings]})
    screen.table(("ENV", "STATE", "WHERE"), [(ending.data["key"], ending.data["state"], ending.where) for ending in endings])
    return max(ending.code for ending in endings)


class Ending(NamedTuple):
    """What became of one environment."""

    code: Exit
    data: dict[str, Any]
    where: str


def _ending(plan: EnvPlan, do: Callable[[EnvPlan], EnvState], wanted: EnvStatus, screen: Screen) -> Ending:
    try:
        state = do(plan)
    except ComfyEnvError as error:
        code = exit_code(error)
        if code is Exit.INTERRUPTED:
            raise
        screen.note(f"{type(error).__name__}: {error}")
        return Ending(code, {"key": plan.key, "state": "failed", "error": error_facts(error)}, error.message)
    code = Exit.DONE if state.status is wanted else Exit.NOT_READY
    return Ending(code, as_data(plan, state), str(state.folder or state.interpreter or state.reason))
