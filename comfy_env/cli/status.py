"""`comfy-env status`: one table from real probes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from comfy_env.cli.choose import chosen, refusal
from comfy_env.cli.exits import Exit
from comfy_env.cli.screen import Screen
from comfy_env.cli.strangers import warnings
from comfy_env.errors import ComfyEnvError
from comfy_env.packs import legacy, pins
from comfy_env.pool import WorkerPool
from comfy_env.values import EnvPlan, EnvState, EnvStatus

HEADS = ("ENV", "STATE", "BACKEND", "PROVIDER", "PYTHON", "VERSIONS", "CHANNEL", "NODES", "REASON", "FIX")


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Show the state of each chosen environment."""
    plans = chosen(options)
    with WorkerPool() as pool:
        states = [probed(pool, plan, not options.quick) for plan in plans]
    notes = [*notes_of(plans), *warnings()]
    screen.document({"envs": [as_data(plan, state) for plan, state in zip(plans, states, strict=True)], "notes": notes})
    screen.table(HEADS, [_row(plan, state) for plan, state in zip(plans, states, strict=True)])
    screen.say(*notes)
    return Exit.DONE if all(state.status is EnvStatus.READY for state in states) else Exit.NOT_READY


def probed(pool: WorkerPool, plan: EnvPlan, probe: bool) -> EnvState:
    """Return an environment's state; a probe that fails is a state too, so that one bad pack does not hide the others."""
    try:
        return pool.inspect(plan, probe=probe)
    except ComfyEnvError as error:
        return EnvState(plan.key, EnvStatus.BROKEN, reason=refusal(error), fix=error.hint)


def as_data(plan: EnvPlan, state: EnvState) -> dict[str, Any]:
    """Return an environment's state for `--json`."""
    return {
        "key": plan.key, "state": state.status.value, "backend": plan.backend, "python": python_of(plan, state), "nodes": list(plan.nodes),
        "pack": plan.pack.id if plan.pack else None, "reason": state.reason, "fix": state.fix, "folder": state.folder,
        "interpreter": state.interpreter, "versions": dict(state.versions), "declared": plan.source,
        "provider": state.provider, "channels": list(state.channels),
    }


def notes_of(plans: Iterable[EnvPlan]) -> list[str]:
    """Return what the packs' older files ask for that is not done by us, and which packs would replace us."""
    folders = dict.fromkeys(plan.pack.folder for plan in plans if plan.pack is not None and plan.pack.folder is not None)
    return [*(note for folder in folders if legacy.declares(folder) for note in legacy.notes(folder)), *pins.pins(folders)]


def python_of(plan: EnvPlan, state: EnvState) -> str:
    """Return the Python an environment has, or the one it wants."""
    return dict(state.versions).get("python", "") or plan.python or ""


def _row(plan: EnvPlan, state: EnvState) -> tuple[str, ...]:
    nodes = ", ".join(plan.nodes)
    versions = ", ".join(f"{name} {version}" for name, version in state.versions if name != "python")
    made = state.provider, python_of(plan, state), versions, ", ".join(state.channels)
    return plan.key, state.status.value, plan.backend, *made, nodes, state.reason, state.fix
