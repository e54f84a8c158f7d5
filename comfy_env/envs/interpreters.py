"""Finding a Python for a plan. Only an interpreter that ran counts: shims exist that answer to a name and then fail."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet

from comfy_env.envs import probes, tools
from comfy_env.errors import PlanError
from comfy_env.packs import pythons
from comfy_env.packs.wrong import Wrong
from comfy_env.values import EnvPlan

_COMFY_FLOOR = ">=3.10"


@dataclass(frozen=True)
class Found:
    """An interpreter that ran. ``base`` is the one it is a virtual environment of, else itself."""

    path: Path
    version: str


def wanted(plan: EnvPlan) -> SpecifierSet:
    """Return the versions the plan allows; raises PlanError."""
    try:
        allowed = pythons.specifier(plan.python)
        both = allowed & SpecifierSet(_COMFY_FLOOR, prereleases=True) if plan.comfy else allowed
        if not pythons.minors(both):
            raise Wrong(f"python {plan.python!r} is too old for comfy = true", "ComfyUI's sources need Python 3.10 or newer")
        return both
    except Wrong as wrong:
        raise PlanError(f"{plan.source + ': ' if plan.source else ''}{wrong.what}", env=plan.key, hint=wrong.hint) from None


def find(plan: EnvPlan) -> tuple[Found | None, tuple[str, ...]]:
    """Return an interpreter the plan allows, the host's own before the newest, and what was tried in vain."""
    allowed = wanted(plan)
    tried: list[str] = []
    for path in _candidates(allowed):
        facts = probes.look(path)
        trouble = facts.trouble or _unfit(facts, allowed)
        if not trouble:
            return Found(path, facts.version), tuple(tried)
        tried.append(f"{path}: {trouble}")
    return None, tuple(tried)


def missing(plan: EnvPlan, tried: tuple[str, ...], more: str = "") -> PlanError:
    """Return the error that says no interpreter was found, and where it was looked for."""
    asked = plan.python or "the host's own"
    return PlanError(
        f"no Python {asked} was found on this machine" + (f"; {more}" if more else ""),
        env=plan.key,
        output=tried or ("no interpreter of such a name is on PATH or among pyenv's versions",),
        hint="install one, or give the plan another python, or its interpreter",
    )


def _unfit(facts: probes.Facts, allowed: SpecifierSet) -> str:
    if facts.implementation != "cpython":
        return f"it is {facts.implementation}, not CPython"
    return "" if allowed.contains(facts.version) else f"it is Python {facts.version}"


def _candidates(allowed: SpecifierSet) -> Iterator[Path]:
    if sys.executable and allowed.contains(".".join(map(str, sys.version_info[:3]))):
        yield Path(sys.executable)
    minors = pythons.minors(allowed)
    folders = [Path(folder) for folder in os.get_exec_path() if folder]
    names = [*(f"python3.{minor}" for minor in minors), "python3", "python"]
    seen = set()
    for path in [folder / name for name in names for folder in folders] + _pyenv_versions(minors):
        if path not in seen and os.access(path, os.X_OK) and path.is_file():
            seen.add(path)
            yield path


def _pyenv_versions(minors: tuple[int, ...]) -> list[Path]:
    """Return what pyenv installed: below the root it names, and beside itself, since without its variables it names the home folder."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return []
    answer = tools.ask([pyenv, "root"], 10)
    roots = [Path(pyenv).resolve().parents[1], *([] if answer.trouble else [Path(answer.out.strip())])]
    pattern = "versions/3.{}.*/bin/python"
    return [path for minor in minors for root in roots for path in sorted(root.glob(pattern.format(minor)), reverse=True)]
