"""What both ways of making a conda environment work with."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from comfy_env.backends.pixi import conda_specs
from comfy_env.backends.pixi.providers import Provider
from comfy_env.envs import cuda_wheels, host_comfy, interpreters
from comfy_env.envs.cuda_wheels import Settled
from comfy_env.envs.journal import Journal
from comfy_env.envs.sources import Sources
from comfy_env.errors import PlanError
from comfy_env.packs import pythons
from comfy_env.packs.pixi_manifest import Manifest
from comfy_env.process import launch
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan


@dataclass(frozen=True)
class Making:
    """One build. ``manifest`` is the pack's own, None where the plan declares the environment.

    ``variables`` are those a tool runs with, ``made_from`` says what the build is made from and by which kind of tool.
    """

    plan: EnvPlan
    settings: Settings
    target: Path
    journal: Journal
    provider: Provider
    manifest: Manifest | None
    environment: str
    made_from: str
    variables: Mapping[str, str]
    sources: Sources

    @property
    def lock_told(self) -> str:
        """What the lock is called in messages: the copy a build follows goes with the build."""
        return str(self.manifest.lock) if self.manifest and self.manifest.lock else "the lock of the last build"

    def worker_variables(self) -> dict[str, str]:
        """Return what a worker of the plan gets before activation: its scripts see no secret and no launcher's variable."""
        given = launch.worker_variables(self.plan, nonce="", host_nonce="", generation=0)
        return {name: value for name, value in given.items() if not name.startswith("COMFY_ENV_")}

    def settled(self) -> Settled:
        """Return the plan's Python requirements, with its CUDA wheels looked up and what `comfy = true` adds; raises BuildFailed."""
        found = cuda_wheels.settle(self.plan, self.settings, python_of(self.plan))
        return replace(found, lines=(*found.lines, *comfy_lines(self.plan)))


def comfy_lines(plan: EnvPlan) -> tuple[str, ...]:
    """Return what ComfyUI's sources import at the host's versions, but for what the plan has from conda."""
    conda = set(map(canonicalize_name, conda_specs.names(plan)))
    return tuple(line for line in host_comfy.lines(plan) if line.partition("==")[0] not in conda)


def python_of(plan: EnvPlan) -> str:
    """Return the minor version a plan's Python is: the host's own where the plan allows it, else the newest."""
    allowed = interpreters.wanted(plan)
    own = ".".join(map(str, sys.version_info[:2]))
    minors = pythons.minors(allowed)
    return own if sys.version_info[1] in minors else f"3.{minors[0]}"


def asked_python(plan: EnvPlan) -> str:
    """Return the version of Python to ask conda for, '' where the plan's conda requirements name it; raises PlanError."""
    if "python" in conda_specs.names(plan):
        if plan.python:
            where = f"{plan.source}: " if plan.source else ""
            raise PlanError(f"{where}python stands in the plan and in its conda requirements", env=plan.key, hint="leave one out")
        return ""
    wanted = plan.python or ".".join(map(str, sys.version_info[:2]))
    if any(map(cuda_wheels.is_asked, plan.dependencies)):
        wanted = python_of(plan)
    return f"{wanted}.*" if re.fullmatch(r"\d+(\.\d+)?", wanted) else wanted
