"""What a plan asks for and this very Python does not have: a thread has the host's packages and no others."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement

from comfy_env.packs import pythons
from comfy_env.packs.wrong import Wrong
from comfy_env.values import EnvPlan


def unmet(plan: EnvPlan) -> str:
    """Return in words what the plan cannot have here, '' if it has everything."""
    return "; ".join(_troubles(plan))


def _troubles(plan: EnvPlan) -> Iterator[str]:
    if plan.interpreter is not None and os.path.realpath(plan.interpreter) != os.path.realpath(sys.executable):
        yield f"it wants the interpreter {plan.interpreter}"
    if plan.python and not _allowed(plan.python):
        yield f"it wants Python {plan.python}, and this is {platform.python_version()}"
    if plan.conda is not None and plan.conda.dependencies:
        yield f"it wants conda packages ({', '.join(plan.conda.dependencies)})"
    for line in plan.dependencies:
        yield from _of_requirement(line)


def _allowed(python: str) -> bool:
    try:
        return pythons.specifier(python).contains(platform.python_version())
    except Wrong:
        return False


def _of_requirement(line: str) -> Iterator[str]:
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        yield f"{line!r} is no requirement that could be looked for here"
        return
    if wanted.marker is not None and not wanted.marker.evaluate():
        return
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        yield f"it wants {wanted}, and {wanted.name} is not installed"
        return
    if not wanted.specifier.contains(version, prereleases=True):
        yield f"it wants {wanted}, and {wanted.name} is {version}"
