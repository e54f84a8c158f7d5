"""What hosts of nodes share: where a pack's classes live, which values cross, which arrays are tensors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from comfy_env.packs import legacy
from comfy_env.values import EnvPlan

IN_WORKER = "__comfy_env_packages__"
"""The global that a worker gives the module of a pack it imports."""

OBJECT_TYPES = frozenset({
    "MODEL", "CLIP", "VAE", "CONTROL_NET", "CLIP_VISION", "CLIP_VISION_OUTPUT", "STYLE_MODEL", "GLIGEN", "UPSCALE_MODEL", "SAMPLER",
    "GUIDER", "NOISE", "HOOKS", "HOOK_KEYFRAMES", "LATENT_UPSCALE_MODEL", "AUDIO_ENCODER", "MODEL_PATCH", "PHOTOMAKER", "LORA_MODEL",
})
"""Types of core whose values are objects of core's own classes: they cannot leave the process that made them."""

_WHOLE = frozenset({"IMAGE", "MASK", "SIGMAS"})
_PART = {"LATENT": "samples", "AUDIO": "waveform"}


def own_mappings(scope: Mapping[str, Any], packages: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Import a pack's own modules, by their names relative to it, and return their classes and display names."""
    classes: dict[str, Any] = {}
    names: dict[str, str] = {}
    for package in packages:
        module = importlib.import_module(f".{package}", scope["__name__"])
        classes.update(getattr(module, "NODE_CLASS_MAPPINGS", None) or {})
        names.update(getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", None) or {})
    return classes, names


def owners(names: Iterable[str], plans: Iterable[EnvPlan]) -> dict[str, EnvPlan]:
    """Return which plan each class belongs to: the first whose patterns fit, else the first without patterns."""
    plans = list(plans)
    rest = next((plan for plan in plans if not plan.nodes), None)
    found = {name: next((plan for plan in plans if any(fnmatchcase(name, p) for p in plan.nodes)), rest) for name in names}
    return {name: plan for name, plan in found.items() if plan is not None}


def as_declared(declared: Any, value: Any) -> Any:
    """Return the value of an output declared as `declared`, as a tensor if that is what a host with torch expects.

    Neither torch nor numpy is imported: a host that has not loaded them keeps what it was given.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is None or numpy is None or not isinstance(declared, str):
        return value
    if declared in _WHOLE:
        return _tensor(torch, numpy, value)
    part = _PART.get(declared)
    if part is not None and isinstance(value, Mapping) and part in value:
        return {**value, part: _tensor(torch, numpy, value[part])}
    return value


def _tensor(torch: Any, numpy: Any, value: Any) -> Any:
    if not isinstance(value, numpy.ndarray):
        return value
    fit = value if value.flags.writeable and value.flags.c_contiguous else value.copy(order="C")
    return torch.from_numpy(fit)


def host_packages(folder: Path, nodes_package: str) -> list[str]:
    """Return the packages of nodes that an older pack leaves in the host: folders beside those with a file of their own."""
    place = folder / nodes_package
    if (place / legacy.FILE).is_file() or not list(place.glob(f"*/{legacy.FILE}")):
        return []
    inner = sorted(path.parent for path in place.glob("*/__init__.py") if not (path.parent / legacy.FILE).is_file())
    return [f"{nodes_package}.{path.name}" for path in inner]
