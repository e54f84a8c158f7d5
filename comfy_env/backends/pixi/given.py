"""The pack's own manifest where it has one: what of it decides a build, and its files laid into the build's folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from comfy_env.packs.pixi_manifest import LOCK, Keys, Manifest, features
from comfy_env.packs.pixi_platforms import here, targets

_OUTSIDE = "environments are built outside the pack"
_ABSOLUTE = "write the whole path, as file:///folder for a channel, or let py-rattler make it: COMFY_ENV_PIXI=off"


def digest(manifest: Manifest | None) -> bytes:
    """Return a digest of the manifest's own tables, its lock and its scripts; b'' without one."""
    if manifest is None:
        return b""
    found = hashlib.sha256()
    project = manifest.document.table("project") if manifest.base else {}
    asked = {key: project.get(key) for key in ("dependencies", "optional-dependencies", "requires-python")}
    tables = manifest.document.table(*manifest.base) if manifest.base else manifest.document.data
    found.update(json.dumps([asked, tables], sort_keys=True, default=str).encode())
    for file in (*([manifest.lock] if manifest.lock else []), *_scripts(manifest)):
        found.update(file.read_bytes())
    return found.digest()


def lay(manifest: Manifest, target: Path) -> None:
    """Copy the manifest, its lock and its activation scripts; the pack's folder is only read."""
    shutil.copyfile(manifest.file, target / manifest.file.name)
    if manifest.lock is not None:
        shutil.copyfile(manifest.lock, target / LOCK)
    for script in _scripts(manifest):
        beside = target / script.relative_to(manifest.file.parent.resolve())
        beside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(script, beside)


def refuse_paths(manifest: Manifest, environment: str) -> None:
    """Raise PlanError for a dependency, channel or wheel that is in a folder of the pack: a build's folder does not hold it."""
    for part in features(manifest, environment):
        _refuse_folders(manifest, part)
        for at in (part, *((*part, "target", target) for target in targets(here()))):
            for kind in ("dependencies", "pypi-dependencies"):
                _refuse_path(manifest, (*at, kind))


def _refuse_folders(manifest: Manifest, part: Keys) -> None:
    """Raise PlanError for a channel or a folder of wheels that is named by its place in the pack."""
    at = part or manifest.workspace
    for entry in manifest.get((*at, "channels")) or []:
        name = str(entry.get("channel", "") if isinstance(entry, dict) else entry)
        if name.startswith((".", "~")):
            raise manifest.problem((*at, "channels"), f"the channel {name} is a folder of the pack: {_OUTSIDE}", _ABSOLUTE)
    options = [(*at, "pypi-options", "find-links"), *([("pypi-options", "find-links")] if not part else [])]
    for keys in options:
        for entry in manifest.get(keys) or []:
            if isinstance(entry, dict) and not Path(str(entry.get("path", "/"))).is_absolute():
                raise manifest.problem(keys, f"find-links = {entry['path']!r} is a folder of the pack: {_OUTSIDE}", _ABSOLUTE)


def _refuse_path(manifest: Manifest, at: Keys) -> None:
    for name, value in manifest.table(at).items():
        if isinstance(value, dict) and "path" in value:
            raise manifest.problem((*at, name), f"{name} is a folder: {_OUTSIDE}",
                                   "leave it out: a pack's own folder is on the worker's path anyway")


def _scripts(manifest: Manifest) -> list[Path]:
    """Return the activation scripts the manifest names; raises PlanError for one outside the pack."""
    named = [(keys, str(script)) for keys in _places(manifest) for script in manifest.get(keys) or []]
    files = [_inside(manifest, keys, script) for keys, script in named]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _places(manifest: Manifest) -> list[Keys]:
    """Return everywhere a manifest may name scripts."""
    parts: list[Keys] = [(), *(("feature", name) for name in manifest.table(("feature",)))]
    parts += [("environments", name) for name in manifest.environments()]
    kinds: list[Keys] = [(), *(("target", name) for name in targets(here()))]
    return [(*part, *kind, "activation", "scripts") for part in parts for kind in kinds]


def _inside(manifest: Manifest, keys: Keys, script: str) -> Path:
    root = manifest.file.parent.resolve()
    if not (root / script).resolve().is_relative_to(root):
        raise manifest.problem(keys, f"the activation script {script} lies outside the pack", "put it into the pack")
    return root / script
