"""What is told of conda environments: their state, their channels and versions, and what a build would change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from comfy_env.backends.pixi import conda_specs, prefixes
from comfy_env.envs import paths, probes, stamps
from comfy_env.packs import pixi_manifest
from comfy_env.packs.pixi_platforms import here, targets
from comfy_env.settings import Settings
from comfy_env.values import Changes, EnvPlan, EnvState, EnvStatus

BY_HAND = "pixi, by hand"


def prefix_in_pack(plan: EnvPlan) -> Path | None:
    """Return where pixi would have made the plan's environment in the pack, None without a manifest there."""
    manifest = None if plan.interpreter else pixi_manifest.of_plan(plan)
    return prefixes.prefix_in(manifest.file.parent, pixi_manifest.environment_of(plan, manifest)) if manifest else None


def materialised(plan: EnvPlan) -> Path | None:
    """Return the interpreter of an environment that pixi made in the plan's own folder, None without one."""
    prefix = prefix_in_pack(plan)
    interpreter = prefixes.interpreter_of(prefix) if prefix else None
    return interpreter if interpreter and os.access(interpreter, os.X_OK) else None


def as_it_is(plan: EnvPlan, interpreter: Path, probe: bool) -> EnvState:
    """Return the state of an environment that is used where it is."""
    facts = probes.probe(interpreter, ()) if probe else probes.Facts()
    prefix = prefixes.prefix_of(interpreter)
    about = prefixes.look(prefix) if probe else prefixes.About()
    status = EnvStatus.BROKEN if facts.trouble else EnvStatus.READY
    fix = f"pixi install --manifest-path {plan.root}" if facts.trouble else ""
    versions = (("python", facts.version), *_named(plan, {**facts.packages, **dict(about.packages)}, set())) if facts.version else ()
    return EnvState(plan.key, status, interpreter, prefix, facts.trouble, fix, versions, BY_HAND, about.channels)


def not_ours(plan: EnvPlan, interpreter: Path) -> EnvState:
    """Return the state of an environment that pixi made in the pack, after ours was removed."""
    return replace(as_it_is(plan, interpreter, probe=False), folder=None, reason="pixi made it in the pack, and only pixi removes it")


def described(plan: EnvPlan, state: EnvState) -> EnvState:
    """Return the state with the channels and the versions of the packages the plan or its manifest names."""
    if state.interpreter is None or state.folder is None:
        return state
    build = prefixes.build_of(prefixes.prefix_of(state.interpreter))
    about = (prefixes.read(build) if build else None) or prefixes.About()
    stamp, _ = stamps.read(state.folder)
    there = {**(stamp.packages if stamp else {}), **dict(about.packages)}
    return replace(state, channels=about.channels, versions=(*state.versions, *_named(plan, there, {name for name, _ in state.versions})))


def _named(plan: EnvPlan, there: Mapping[str, str], told: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the versions of what the plan or its manifest asks for by name, without what is told already."""
    asked = dict.fromkeys((*conda_specs.names(plan), *_manifest_names(plan)))
    found = {name: there.get(canonicalize_name(name), "") for name in asked}
    return tuple((name, version) for name, version in found.items() if version and name not in told | {"python"})


def _manifest_names(plan: EnvPlan) -> list[str]:
    manifest = pixi_manifest.of_plan(plan)
    if manifest is None:
        return []
    parts = pixi_manifest.features(manifest, pixi_manifest.environment_of(plan, manifest))
    places = [place for part in parts for place in (part, *((*part, "target", name) for name in targets(here())))]
    return [name for place in places for kind in ("dependencies", "pypi-dependencies") for name in manifest.table((*place, kind))]


def about(plan: EnvPlan, settings: Settings) -> prefixes.About:
    """Return what the plan's build in use holds."""
    folder = paths.env_folder(plan, settings)
    stamp, _ = stamps.read(folder)
    return (prefixes.read(folder / stamp.build) if stamp else None) or prefixes.About()


def unsolved(plan: EnvPlan) -> Changes:
    """Return what a build with pixi would ask for: only pixi itself knows what that brings."""
    manifest = pixi_manifest.of_plan(plan)
    files = (manifest.file, *([manifest.lock] if manifest.lock else [])) if manifest else ()
    conda = plan.conda.dependencies if plan.conda else ()
    listed: tuple[Any, ...] = tuple(f"{file.name} of the pack" for file in files) or (*conda, *plan.dependencies)
    return Changes(plan.key, listed, notes=("pixi resolves these when it builds",))


def difference(plan: EnvPlan, have: prefixes.About, said: Mapping[str, Any]) -> Changes:
    """Return what the packages that were solved change."""
    new = {package["name"]: package for package in said["packages"]}
    old = dict(have.packages)
    fresh = {name: package for name, package in sorted(new.items()) if old.get(name) != package["version"]}
    install = tuple(f"{name} {package['version']} {package['build']}" for name, package in fresh.items())
    gone = tuple(f"{name} {version}" for name, version in sorted(old.items()) if name not in new)
    notes = ("the Python packages are resolved when it is built",) if plan.dependencies or said["pypi"] else ()
    size = sum(package["size"] or 0 for package in fresh.values())
    return Changes(plan.key, (*install, *plan.dependencies), gone, new.get("python", {}).get("version", ""), size, notes)
