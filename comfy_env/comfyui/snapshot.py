"""Takes a pack's snapshot in a throw-away process, and finds the one to serve without starting any."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from comfy_env import __version__
from comfy_env.comfyui import core
from comfy_env.comfyui.home import ENTRY, Home
from comfy_env.comfyui.paths import HostState
from comfy_env.envs.paths import bytecode_folder, env_folder, snapshot_file
from comfy_env.envs.stamps import read as read_stamp
from comfy_env.errors import PlanError
from comfy_env.packs import snapshot as data
from comfy_env.packs.sources import read_sources
from comfy_env.pool import WorkerPool
from comfy_env.settings import Settings
from comfy_env.values import CallOptions, EnvPlan

log = logging.getLogger(__name__)


def key_of(plan: EnvPlan, home: Home, settings: Settings) -> data.Key:
    """Return what a snapshot taken now would depend on."""
    stamp, _ = read_stamp(env_folder(plan, settings))
    env = f"{stamp.build} {stamp.plan}" if stamp else str(plan.interpreter or "")
    return data.Key(data.sources_key(Path(home.folder)), env, core.version(), __version__)


class Outside(HostState):
    """The state for a snapshot that no ComfyUI asks for: its sources if they are known, and no card."""

    def __init__(self, sources: Path | None, pycache: Path) -> None:
        super().__init__(pycache)
        self._sources = sources

    def document(self) -> dict[str, Any]:
        root = None if self._sources is None else str(self._sources)
        return {**super().document(), "root": root, "flags": {"cpu": True}}


def comfyui_above(folder: Path) -> Path | None:
    """Return the ComfyUI a pack's folder lies in, None if it lies in none."""
    for place in folder.resolve().parents:
        if (place / "folder_paths.py").is_file() and (place / "comfy").is_dir():
            return place
    return None


def home_of(plan: EnvPlan) -> Home:
    """Return where a plan's pack is, as ComfyUI would name it; raises PlanError for a plan without a pack's folder."""
    if plan.root is None or not (plan.root / "__init__.py").is_file():
        raise PlanError(f"{plan.key} belongs to no node pack: {plan.root or 'it has no folder'} has no __init__.py", env=plan.key)
    return Home(str(plan.root), str(plan.root).replace(".", "_x_"))


def take_outside(plan: EnvPlan, settings: Settings, sources: Path | None = None) -> data.Snapshot:
    """Take a plan's snapshot where no ComfyUI runs: from the command line, or after a build."""
    home = home_of(plan)
    return take(plan, home, settings, Outside(sources or comfyui_above(Path(home.folder)), bytecode_folder(settings)))


def take(plan: EnvPlan, home: Home, settings: Settings, known: HostState) -> data.Snapshot:
    """Import the pack in its environment, in a process of its own, and keep what it describes."""
    options = CallOptions(callbacks={"comfy_env.state": known.document})
    order = {"state": known.version(), "pack": home.order()}
    with WorkerPool(settings) as pool:
        description = pool.call(plan, f"{ENTRY}:describe", order, options=options)
    return keep(plan, home, settings, description)


def keep(plan: EnvPlan, home: Home, settings: Settings, description: dict[str, Any]) -> data.Snapshot:
    """Write a worker's description to where `find` looks for it."""
    snapshot = data.Snapshot.of(description, key_of(plan, home, settings))
    data.write(snapshot_file(plan, settings), snapshot)
    return snapshot


def find(plan: EnvPlan, home: Home, settings: Settings) -> data.Snapshot:
    """Return the best that is known without running anything: taken here, shipped by the author, or read from the sources."""
    folder = Path(home.folder)
    return (
        data.read(snapshot_file(plan, settings))
        or data.read(folder / data.SHIPPED, "pack")
        or read_sources(folder, home.packages)
    )


def is_stale(snapshot: data.Snapshot, plan: EnvPlan, home: Home, settings: Settings) -> bool:
    """Tell whether a snapshot was taken of something else than what is there now."""
    return snapshot.origin != "env" or snapshot.key != key_of(plan, home, settings)
