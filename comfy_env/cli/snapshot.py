"""`comfy-env snapshot`: describe a pack's nodes by importing it in its environment, so that ComfyUI need not."""

from __future__ import annotations

import argparse
from pathlib import Path

from comfy_env.cli.choose import chosen
from comfy_env.cli.exits import Exit, exit_code
from comfy_env.cli.screen import Screen, error_facts
from comfy_env.comfyui import snapshot
from comfy_env.errors import ComfyEnvError
from comfy_env.packs import snapshot as data
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Take the snapshot of each chosen environment; one that fails does not stop the others."""
    sources = Path(options.comfyui).resolve() if options.comfyui else None
    rows, worst = [], Exit.DONE
    for plan in chosen(options):
        try:
            taken = snapshot.take_outside(plan, Settings.read(), sources)
        except ComfyEnvError as error:
            worst = max(worst, exit_code(error))
            rows.append({"key": plan.key, "error": error_facts(error)})
            screen.note(f"{type(error).__name__}: {error}")
            continue
        rows.append({"key": plan.key, "nodes": sorted(taken.nodes), "registered": list(taken.registered)})
        if options.ship and plan.root is not None:
            data.write(plan.root / data.SHIPPED, taken)
    screen.document({"snapshots": rows})
    screen.table(("ENV", "NODES"), [(row["key"], ", ".join(row.get("nodes", ())) or "failed") for row in rows])
    return worst


def after_build(plan: EnvPlan) -> str:
    """Take the snapshot of an environment that was just built; return why it could not be taken, '' if it was."""
    try:
        snapshot.take_outside(plan, Settings.read())
    except ComfyEnvError as error:
        return f"{error.message}\nnext: {error.hint}" if error.hint else error.message
    return ""
