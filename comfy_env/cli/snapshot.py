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
from comfy_env.packs.nodes import owners
from comfy_env.packs.plan import EnvPlan as PackPlan
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Take the snapshot of each chosen environment; one that fails does not stop the others."""
    sources = Path(options.comfyui).resolve() if options.comfyui else None
    rows, worst = [], Exit.DONE
    shipped: dict[Path, data.Snapshot] = {}
    for plan in chosen(options):
        try:
            taken = snapshot.take_outside(plan, Settings.read(), sources)
        except ComfyEnvError as error:
            worst = max(worst, exit_code(error))
            rows.append({"key": plan.key, "error": error_facts(error)})
            screen.note(f"{type(error).__name__}: {error}")
            continue
        own = _own(plan, taken)
        rows.append({"key": plan.key, "nodes": sorted(own.nodes), "registered": list(taken.registered)})
        if options.ship and plan.root is not None:
            shipped[plan.root] = own if plan.root not in shipped else shipped[plan.root].with_more(own)
    for root, whole in shipped.items():
        data.write(root / data.SHIPPED, whole)
    screen.document({"snapshots": rows})
    screen.table(("ENV", "NODES"), [(row["key"], ", ".join(row.get("nodes", ())) or "failed") for row in rows])
    return worst


def _own(plan: EnvPlan, taken: data.Snapshot) -> data.Snapshot:
    """Return what was described of the nodes that live in the plan's environment: a pack may import more there."""
    beside = PackPlan.from_pack(plan.root) if plan.root is not None else ()
    if len(beside) < 2 or not any(one.nodes for one in beside):
        return taken
    return taken.only(name for name, owner in owners(taken.nodes, beside).items() if owner.key == plan.key)


def after_build(plan: EnvPlan) -> str:
    """Take the snapshot of an environment that was just built; return why it could not be taken, '' if it was."""
    try:
        snapshot.take_outside(plan, Settings.read())
    except ComfyEnvError as error:
        return f"{error.message}\nnext: {error.hint}" if error.hint else error.message
    return ""
