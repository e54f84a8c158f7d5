"""Conda requirements of a plan, such as "ffmpeg>=6,<7" and "channel::name 1.2.*", taken apart."""

from __future__ import annotations

import re

from comfy_env.errors import PlanError
from comfy_env.values import EnvPlan

_MATCH = re.compile(r"(?:(?P<channel>[\w./:-]+)::)?(?P<name>[\w.-]+)\s*(?P<version>[^\s\w].*|\d.*|)")


def parts(plan: EnvPlan, line: str) -> dict[str, str]:
    """Return channel, name and version of a requirement, '' for what it does not say; raises PlanError."""
    match = _MATCH.fullmatch(line.strip())
    if match is None:
        raise PlanError(f"{line!r} is not a conda requirement", env=plan.key, hint='write "ffmpeg>=6,<7" or "channel::name 1.2.*"')
    return {name: (value or "").strip() for name, value in match.groupdict().items()}


def names(plan: EnvPlan) -> tuple[str, ...]:
    """Return the packages a plan asks conda for."""
    return tuple(parts(plan, line)["name"] for line in (plan.conda.dependencies if plan.conda else ()))
