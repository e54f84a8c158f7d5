"""What `torch = "host"` adds to a plan: the very build of torch the host has, as far as an index still has it.

With it come torchvision and torchaudio where the host has them: they only fit the torch they were made for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

FAMILY = ("torchvision", "torchaudio")
WHEELS = "https://download.pytorch.org/whl"


@dataclass(frozen=True)
class Wish:
    """Requirements and indexes to add, and what to say of them."""

    requirements: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def host_version() -> str:
    """Return the version of the host's torch from its metadata, '' without one; torch is not imported."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def wishes(plan: EnvPlan, settings: Settings) -> tuple[Wish, ...]:
    """Return what to install for the plan's `torch`, the exact wish first and what to take where that fails after it."""
    if plan.torch != "host":
        return (Wish(),)
    version = host_version()
    if not version:
        return (Wish(remarks=('torch = "host", but the host has no torch: none is added',)),)
    beside = family(plan)
    public, _, build = version.partition("+")
    alone = Wish((f"torch=={public}",), (), (f"torch {public} like the host",))
    found = [_together(alone, tuple(line.partition("+")[0] for line in beside)), alone] if beside else [alone]
    if build:
        exact = Wish((f"torch=={version}",), () if plan.indexes else indexes(build, settings), (f"torch {version} like the host",))
        found.insert(0, _together(exact, beside))
    return tuple(found)


def likely(found: tuple[Wish, ...]) -> Wish:
    """Return the first of the wishes that any index can fulfil: of public versions."""
    return next(wish for wish in found if not any("+" in line for line in wish.requirements))


def family(plan: EnvPlan) -> tuple[str, ...]:
    """Return what the host has of torch's family, as requirements, but for what the plan names itself."""
    named = {re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0].lower() for line in plan.dependencies}
    return tuple(f"{name}=={version}" for name in FAMILY if name not in named and (version := member_version(name)))


def member_version(name: str) -> str:
    """Return the version of one of the family in the host, '' for one it does not have."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _together(wish: Wish, beside: tuple[str, ...]) -> Wish:
    told = (f"with {', '.join(beside)}",) if beside else ()
    return Wish((*wish.requirements, *beside), wish.indexes, (*wish.remarks, *told))


def indexes(build: str, settings: Settings) -> tuple[str, ...]:
    """Return where a build of torch ("cu128") may be had."""
    own = (settings.cuda_wheels_index,) if settings.cuda_wheels_index else ()
    return (*own, f"{WHEELS}/{build}") if re.fullmatch(r"cpu|xpu|cu\d+|rocm[\d.]+", build) else own
