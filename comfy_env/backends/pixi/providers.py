"""Who makes conda environments here: a real pixi, else py-rattler in this Python, else nobody."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from comfy_env.envs import tools
from comfy_env.errors import BuildFailed, ToolTooOld
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

PIXI = "pixi"
RATTLER = "py-rattler"
OLDEST = {PIXI: Version("0.43"), RATTLER: Version("0.28")}
"""The first pixi with the manifest and options used here; the first py-rattler this was proven with."""
HOW_PIXI = "install pixi (https://pixi.sh) and put it on PATH, or name it in COMFY_ENV_PIXI; no package of a Python index is it"
HOW_RATTLER = f"or install py-rattler: {shlex.quote(sys.executable)} -m pip install 'py-rattler>={OLDEST[RATTLER]}'"


@dataclass(frozen=True)
class Provider:
    """A tool that answered. ``path`` is the program, for py-rattler the folder it is imported from."""

    kind: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"


def find(plan: EnvPlan, settings: Settings) -> tuple[Provider | None, tuple[str, ...]]:
    """Return the provider and why better ones are not it; raises BuildFailed where the one that is named cannot serve."""
    if settings.pixi == "off":
        return _rattler(plan, ("COMFY_ENV_PIXI=off",))
    place = settings.pixi or shutil.which("pixi")
    if not place:
        return _rattler(plan, ("no pixi is on PATH, and COMFY_ENV_PIXI names none",))
    version, trouble = _asked(place)
    if not trouble:
        return Provider(PIXI, _new_enough(PIXI, version, place, plan), Path(place).absolute()), ()
    if settings.pixi:
        raise BuildFailed(f"{place} is not pixi: {trouble}", env=plan.key, hint=HOW_PIXI)
    return _rattler(plan, (f"{place} is not pixi: {trouble}",))


def missing(plan: EnvPlan, why: tuple[str, ...], looked: str) -> BuildFailed:
    """Return the one error that says which of the three ways is missing and how to get it."""
    return BuildFailed(
        "nothing here can make a conda environment", env=plan.key, output=(*why, "py-rattler is not installed", looked),
        hint=f"{HOW_PIXI}; {HOW_RATTLER}",
    )


def _asked(place: str) -> tuple[str, str]:
    """Return the version a program tells of itself as pixi, and what is wrong with that."""
    answer = tools.ask([place, "--version"], 20)
    told = re.match(r"pixi (\d+(?:\.\d+)+)", answer.out)
    if answer.trouble or told is None:
        return "", answer.trouble or repr(answer.out.strip()[:80])
    return told[1], ""


def _new_enough(kind: str, version: str, place: object, plan: EnvPlan) -> str:
    if Version(version) < OLDEST[kind]:
        raise ToolTooOld(
            f"{kind} {version} ({place}) is too old: {OLDEST[kind]} or newer is needed", env=plan.key,
            hint="update it" + ("; COMFY_ENV_PIXI=off leaves it out and uses py-rattler" if kind == PIXI else ""),
        )
    return version


def _rattler(plan: EnvPlan, why: tuple[str, ...]) -> tuple[Provider | None, tuple[str, ...]]:
    spec = importlib.util.find_spec("rattler")
    if spec is None or spec.origin is None:
        return None, why
    try:
        version = metadata.version(RATTLER)
    except metadata.PackageNotFoundError:
        return None, (*why, f"{spec.origin} is another package than py-rattler")
    return Provider(RATTLER, _new_enough(RATTLER, version, spec.origin, plan), Path(spec.origin).parents[1]), why
