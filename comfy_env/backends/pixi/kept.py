"""The lock of an environment's last good build, kept beside all environments: the same declaration is built the same again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from comfy_env.envs import paths, swap
from comfy_env.packs.pixi_manifest import LOCK
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

PYPI = "pypi-lock.txt"
_WANTED = "made-from"


def folder(plan: EnvPlan, settings: Settings) -> Path:
    return paths.office(settings) / "locks" / paths.folder_name(plan.key)


def take(plan: EnvPlan, settings: Settings, made_from: str, target: Path) -> bool:
    """Copy the lock into a build's folder if it was made from the same; return whether there is one now."""
    place = folder(plan, settings)
    if not (place / _WANTED).is_file() or (place / _WANTED).read_text(encoding="utf-8") != made_from:
        return False
    for name in (LOCK, PYPI):
        if (place / name).is_file():
            shutil.copyfile(place / name, target / name)
    return (target / LOCK).is_file()


def keep(plan: EnvPlan, settings: Settings, made_from: str, target: Path) -> None:
    """Keep the lock of a build. The mark is written last: half a lock is none."""
    place = folder(plan, settings)
    place.mkdir(parents=True, exist_ok=True)
    (place / _WANTED).unlink(missing_ok=True)
    for name in (LOCK, PYPI):
        if (target / name).is_file():
            shutil.copyfile(target / name, place / name)
        else:
            (place / name).unlink(missing_ok=True)
    beside = place / f".{_WANTED}.{os.getpid()}"
    beside.write_text(made_from, encoding="utf-8")
    os.replace(beside, place / _WANTED)


def drop(plan: EnvPlan, settings: Settings) -> None:
    place = folder(plan, settings)
    if place.exists():
        swap.delete(place)
