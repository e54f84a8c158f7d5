"""What `torch = "host"` adds to a plan: the very build of torch the host has, as far as an index still has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

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
    public, _, build = version.partition("+")
    plain = Wish((f"torch=={public}",), (), (f"torch {public} like the host",))
    if not build:
        return (plain,)
    return Wish((f"torch=={version}",), () if plan.indexes else indexes(build, settings), (f"torch {version} like the host",)), plain


def indexes(build: str, settings: Settings) -> tuple[str, ...]:
    """Return where a build of torch ("cu128") may be had."""
    own = (settings.cuda_wheels_index,) if settings.cuda_wheels_index else ()
    return (*own, f"{WHEELS}/{build}") if re.fullmatch(r"cpu|xpu|cu\d+|rocm[\d.]+", build) else own
