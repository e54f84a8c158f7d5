"""What `comfy = true` adds to a plan: the packages that ComfyUI's sources import, at the versions the host has.

A worker of such an environment imports the host's own `comfy` and `comfy_api`; what those import is the host's to say and
no pack declares it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from comfy_env.envs import host_torch
from comfy_env.values import EnvPlan

RUNTIME = (
    "numpy", "pillow", "einops", "safetensors", "tqdm", "psutil", "pyyaml", "packaging", "typing-extensions", "scipy", "av", "torchsde",
    "torchvision", "torchaudio", "transformers", "tokenizers", "sentencepiece", "aiohttp", "pydantic", "comfy-aimdo", "comfy-kitchen",
)
"""What `comfy` and `comfy_api` import (0.3.64, 0.8.0; the last two since dynamic memory came); torch is the plan's."""


def lines(plan: EnvPlan) -> tuple[str, ...]:
    """Return the requirements to add: those of ComfyUI that the host has and the plan does not name itself."""
    if not plan.comfy:
        return ()
    named: set[str] = {canonicalize_name(one.name) for one in _named(plan)}
    if plan.torch == "host":   # they come with it, at versions that fit it
        named.update(host_torch.FAMILY)
    return tuple(f"{name}=={version}" for name in RUNTIME if name not in named and (version := host_version(name)))


def clashes(plan: EnvPlan) -> tuple[str, ...]:
    """Return what the plan asks for that is not what ComfyUI's sources run on here."""
    if not plan.comfy:
        return ()
    wanted = [(one, host_version(canonicalize_name(one.name))) for one in _named(plan) if canonicalize_name(one.name) in RUNTIME]
    return tuple(
        f"comfy = true, and ComfyUI here runs on {one.name} {version}, but the plan wants {one.name}{one.specifier}"
        for one, version in wanted if version and not one.specifier.contains(version, prereleases=True)
    )


def _named(plan: EnvPlan) -> Iterator[Requirement]:
    for line in plan.dependencies:
        with contextlib.suppress(InvalidRequirement):   # building says what is wrong with it
            yield Requirement(line)


def host_version(name: str) -> str:
    """Return the version of a package of the host from its metadata, '' without one."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""
