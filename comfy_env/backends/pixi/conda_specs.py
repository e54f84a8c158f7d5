"""Conda requirements of a plan, such as "ffmpeg>=6,<7" and "channel::name 1.2.*", taken apart."""

from __future__ import annotations

import re

from comfy_env.errors import PlanError
from comfy_env.values import EnvPlan

_MATCH = re.compile(r"(?:(?P<channel>[\w./:-]+)::)?(?P<name>[\w.-]+)\s*(?P<version>[^\s\w].*|\d.*|)")


_BUILD = r"(?P<build>[\w*][\w*.]*)"
_SPACED = re.compile(rf"(?P<version>(?:\S.*)?[^\s,|<>!~=])\s+{_BUILD}")
_EXACT = re.compile(rf"=(?P<version>[^\s=]+)={_BUILD}")


def parts(plan: EnvPlan, line: str) -> dict[str, str]:
    """Return channel, name, version and build of a requirement, '' for what it does not say; raises PlanError."""
    match = _MATCH.fullmatch(line.strip())
    if match is None or "[" in line:
        raise PlanError(f"{line!r} is not a conda requirement", env=plan.key, hint='write "ffmpeg>=6,<7" or "channel::name 1.2.*"')
    found = {name: (value or "").strip() for name, value in match.groupdict().items()}
    return {**found, "build": "", **_split(found["version"])}


def _split(version: str) -> dict[str, str]:
    """Return version and build of "1.2 build" and "=1.2=build", {} for a version alone."""
    exact, spaced = _EXACT.fullmatch(version), _SPACED.fullmatch(version)
    if exact:
        return {"version": f"=={exact['version']}", "build": exact["build"]}
    return spaced.groupdict() if spaced else {}


def names(plan: EnvPlan) -> tuple[str, ...]:
    """Return the packages a plan asks conda for."""
    return tuple(parts(plan, line)["name"] for line in (plan.conda.dependencies if plan.conda else ()))
