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
        planned = [_planned(pool, plan, screen) for plan in plans]
    found = conflicts(plans)
    screen.document({"envs": [one.data for one in planned], "conflicts": [conflict._asdict() for conflict in found]})
    screen.table(("ENV", "PYTHON", "INSTALL", "REMOVE", "DOWNLOAD", "NOTES"), [one.row for one in planned])
    screen.say(*_conflict_lines(found))
    return max(one.code for one in planned)


class Planned(NamedTuple):
    """What a dry run said of one environment."""

    code: Exit
    data: dict[str, Any]
    row: tuple[str, ...]


def _planned(pool: WorkerPool, plan: EnvPlan, screen: Screen) -> Planned:
    try:
        change = pool.plan(plan)
    except ComfyEnvError as error:
        code = _told(error, screen)
        return Planned(code, {"key": plan.key, "error": error_facts(error)}, (plan.key, "", "", "", "", error.message))
    return Planned(Exit.DONE, _changes_data(change), _changes_row(change))


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
        return _each(options, screen, lambda plan: _built(pool, plan, watcher.building, screen), _is_ready)


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
        return _each(options, screen, pool.remove, _is_gone)


def _is_ready(state: EnvState) -> bool:
    return state.status is EnvStatus.READY


def _is_gone(state: EnvState) -> bool:
    """Tell whether nothing of ours is there: an interpreter that was never built by us stays."""
    return state.status is EnvStatus.MISSING or state.folder is None


def _each(options: argparse.Namespace, screen: Screen, do: Callable[[EnvPlan], EnvState], wanted: Callable[[EnvState], bool]) -> Exit:
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


def _ending(plan: EnvPlan, do: Callable[[EnvPlan], EnvState], wanted: Callable[[EnvState], bool], screen: Screen) -> Ending:
    try:
        state = do(plan)
    except ComfyEnvError as error:
        code = _told(error, screen)
        return Ending(code, {"key": plan.key, "state": "failed", "error": error_facts(error)}, error.message)
    code = Exit.DONE if wanted(state) else Exit.NOT_READY
    return Ending(code, as_data(plan, state), "" if code is Exit.DONE and state.status is EnvStatus.MISSING else _where(state))


def _told(error: ComfyEnvError, screen: Screen) -> Exit:
    """Tell an error that ends one environment's turn and return its code; raises it again where it ends the command."""
    code = exit_code(error)
    if code is Exit.INTERRUPTED:
        raise error
    screen.note(f"{type(error).__name__}: {error}")
    return code


def _where(state: EnvState) -> str:
    """Return where an environment is, or why it is nowhere and what to do about it."""
    if state.status is EnvStatus.READY:
        return str(state.folder or state.reason or state.interpreter or "")
    return "; ".join(part for part in (state.reason or str(state.folder or ""), state.fix) if part)
