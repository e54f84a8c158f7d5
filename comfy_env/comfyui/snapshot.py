"""Takes a pack's snapshot in a throw-away process, and finds the one to serve without starting any."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from comfy_env import __version__
from comfy_env.comfyui import core
from comfy_env.comfyui.home import ENTRY, Home
from comfy_env.comfyui.paths import HostState
from comfy_env.envs.paths import bytecode_folder, comfyui_file, env_folder, snapshot_file
from comfy_env.envs.stamps import read as read_stamp
from comfy_env.errors import NodeRaised, PlanError
from comfy_env.packs import legacy
from comfy_env.packs import snapshot as data
from comfy_env.packs.nodes import packages
from comfy_env.packs.plan import EnvPlan as PackPlan
from comfy_env.packs.plan import declares_envs
from comfy_env.packs.sources import read_sources
from comfy_env.settings import Settings
from comfy_env.values import CallOptions, EnvPlan

log = logging.getLogger(__name__)
DEFAULT = "nodes"
"""Where a pack's nodes are unless its `register_nodes()` says something else."""


def key_of(plan: EnvPlan, home: Home, settings: Settings, version: str | None = None) -> data.Key:
    """Return what a snapshot taken now would depend on; `version` is that of the core, if it is not the one that runs here."""
    stamp, _ = read_stamp(env_folder(plan, settings))
    env = f"{stamp.build} {stamp.plan}" if stamp else str(plan.interpreter or "")
    return data.Key(data.sources_key(Path(home.folder)), env, core.version() if version is None else version, __version__)


_OF_COMFYUI = re.compile(r"No module named '(folder_paths|execution|node_helpers|latent_preview|comfy\w*)['.]")


class Outside(HostState):
    """The state for a snapshot that no ComfyUI asks for: its sources if they are known, and no card."""

    def __init__(self, sources: Path | None, pycache: Path) -> None:
        super().__init__(pycache)
        self._sources = sources

    def document(self) -> dict[str, Any]:
        root = None if self._sources is None else str(self._sources)
        return {**super().document(), "root": root, "flags": {"cpu": True}}

    def core_version(self) -> str:
        """Return the version that the sources tell of themselves, '' if they tell none."""
        try:
            text = ((self._sources or Path()) / "comfyui_version.py").read_text(encoding="utf-8")
        except OSError as error:
            log.debug("no version of ComfyUI is known: %s", error)
            return ""
        found = re.search(r"""^__version__ = ["']([^"'\n]+)["']""", text, re.MULTILINE)
        return found[1] if found else ""


def comfyui_above(folder: Path) -> Path | None:
    """Return the ComfyUI a pack's folder lies in, None if it lies in none."""
    return next((place for place in folder.resolve().parents if _is_comfyui(place)), None)


def _is_comfyui(place: Path) -> bool:
    return (place / "folder_paths.py").is_file() and (place / "comfy").is_dir()


def remember_comfyui(settings: Settings) -> None:
    """Note where this ComfyUI is, for builds and snapshots of packs that lie outside its folder."""
    file, root = comfyui_file(settings), core.root()
    try:
        if root is not None and (not file.is_file() or file.read_text(encoding="utf-8") != str(root)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(root), encoding="utf-8")
    except (OSError, ValueError) as error:
        log.debug("it could not be noted where this ComfyUI is: %s", error)


def comfyui_of(folder: Path, settings: Settings) -> Path | None:
    """Return the ComfyUI that a pack belongs to: the one it lies in, else the one that last ran an isolated pack."""
    above = comfyui_above(folder)
    if above is not None:
        return above
    try:
        place = Path(comfyui_file(settings).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        log.debug("it is not known where ComfyUI is: %s", error)
        return None
    return place if _is_comfyui(place) else None


def home_of(plan: EnvPlan) -> Home:
    """Return where a plan's pack is, as ComfyUI would name it; raises PlanError for a plan without a pack's folder."""
    if plan.root is None or not (plan.root / "__init__.py").is_file():
        raise PlanError(f"{plan.key} belongs to no node pack: {plan.root or 'it has no folder'} has no __init__.py", env=plan.key)
    beside = PackPlan.from_pack(plan.root) if declares_envs(plan.root) else ()
    where = {one.key: package for one, package in zip(beside, packages(plan.root, beside, DEFAULT), strict=True)}
    package = where.get(plan.key, DEFAULT)
    own_word = () if package == DEFAULT else (package,)   # the pack says itself where its nodes are, but for one of several folders
    return Home(str(plan.root), str(plan.root).replace(".", "_x_"), own_word, str(legacy.codecs(plan.root) or ""))


def take_outside(plan: EnvPlan, settings: Settings, sources: Path | None = None) -> data.Snapshot:
    """Take a plan's snapshot where no ComfyUI runs: from the command line, or after a build."""
    home = home_of(plan)
    known = Outside(sources or comfyui_of(Path(home.folder), settings), bytecode_folder(settings))
    try:
        return take(plan, home, settings, known)
    except NodeRaised as error:
        if known.document()["root"] is None and _OF_COMFYUI.search(error.message):
            error.hint = "say where ComfyUI is: comfy-env snapshot PACK --comfyui FOLDER; or start it: the first call describes the nodes"
        raise


def take(plan: EnvPlan, home: Home, settings: Settings, known: Outside) -> data.Snapshot:
    """Import the pack in its environment, in a process of its own, and keep what it describes."""
    from comfy_env.pool import WorkerPool  # the rest of this module is asked while ComfyUI waits for packs to register

    options = CallOptions(callbacks={"comfy_env.state": known.document})
    order = {"state": known.version(), "pack": home.order()}
    with WorkerPool(settings) as pool:
        description = pool.call(plan, f"{ENTRY}:describe", order, options=options)
    return keep(plan, home, settings, description, known.core_version())


def keep(plan: EnvPlan, home: Home, settings: Settings, description: dict[str, Any], version: str | None = None) -> data.Snapshot:
    """Write a worker's description to where `find` looks for it."""
    snapshot = data.Snapshot.of(description, key_of(plan, home, settings, version))
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
