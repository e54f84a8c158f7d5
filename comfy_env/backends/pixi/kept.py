"""The lock of an environment's last good build, kept beside all environments: the same declaration is built the same again."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from comfy_env.backends.pixi.making import Making
from comfy_env.envs import paths, swap
from comfy_env.packs.pixi_manifest import LOCK
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

PYPI = "pypi-lock.txt"
FORGET = "`comfy-env remove` forgets the lock of the last build, and the next one is solved anew"
_WANTED = "made-from"


def folder(plan: EnvPlan, settings: Settings) -> Path:
    return paths.office(settings) / "locks" / paths.folder_name(plan.key)


def take(making: Making) -> bool:
    """Copy the lock into a build's folder if it was made from the same and is whole; return whether there is one now."""
    place = folder(making.plan, making.settings)
    mark = place / _WANTED
    made_from, _, digest = mark.read_text(encoding="utf-8").partition("\n") if mark.is_file() else ("", "", "")
    if made_from != making.made_from:
        return False
    if digest != _digest(place):
        making.journal.say("the lock of the last build is damaged and is made anew")
        return False
    for name in (LOCK, PYPI):
        if (place / name).is_file():
            shutil.copyfile(place / name, making.target / name)
    return (making.target / LOCK).is_file()


def keep(making: Making) -> None:
    """Keep the lock of a build. The mark is written last: half a lock is none."""
    place = folder(making.plan, making.settings)
    place.mkdir(parents=True, exist_ok=True)
    (place / _WANTED).unlink(missing_ok=True)
    for name in (LOCK, PYPI):
        if (making.target / name).is_file():
            shutil.copyfile(making.target / name, place / name)
        else:
            (place / name).unlink(missing_ok=True)
    beside = place / f".{_WANTED}.{os.getpid()}"
    beside.write_text(f"{making.made_from}\n{_digest(place)}", encoding="utf-8")
    os.replace(beside, place / _WANTED)


def _digest(place: Path) -> str:
    found = hashlib.sha256()
    for name in (LOCK, PYPI):
        found.update((place / name).read_bytes() if (place / name).is_file() else b"none")
    return found.hexdigest()


def drop(plan: EnvPlan, settings: Settings) -> None:
    place = folder(plan, settings)
    if place.exists():
        swap.delete(place)
