"""What hosts of nodes share: where a pack's classes live, which values cross, which arrays are tensors."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from comfy_env.packs import legacy
from comfy_env.packs.plan import env_names
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
        entry = getattr(module, "comfy_entrypoint", None)
        if not hasattr(module, "NODE_CLASS_MAPPINGS") and callable(entry):
            _add_v3(entry, classes, names)
        classes.update(getattr(module, "NODE_CLASS_MAPPINGS", None) or {})
        names.update(getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", None) or {})
    return classes, names


def _add_v3(entry: Any, classes: dict[str, Any], names: dict[str, str]) -> None:
    """Add the nodes of a V3 entry point. It is awaited on a thread of its own: a host may import packs on its event loop."""
    async def listed() -> list[Any]:
        made = entry()
        extension = await made if inspect.isawaitable(made) else made
        found: list[Any] = await extension.get_node_list()
        return found

    with ThreadPoolExecutor(1, "comfy-env nodes") as thread:
        for cls in thread.submit(lambda: asyncio.run(listed())).result():
            schema = cls.GET_SCHEMA()
            classes[schema.node_id] = cls
            if schema.display_name is not None:
                names[schema.node_id] = schema.display_name


def packages(folder: Path, plans: Sequence[EnvPlan], nodes_package: str) -> list[str]:
    """Return the package that each environment's classes come from.

    An environment of an older pack has the folder its file lies in. One without patterns that is called as a folder of the
    pack's nodes has that folder.
    """
    are_older = any(legacy.FILE in plan.source for plan in plans)
    older = {env.source: legacy.package(folder, env.folder) for env in legacy.envs(folder)} if are_older else {}
    names = env_names(folder) if len(plans) > 1 else {}
    return [older.get(plan.source) or _named_folder(folder, plan, names.get(plan.key, ""), nodes_package) for plan in plans]


def _named_folder(folder: Path, plan: EnvPlan, name: str, nodes_package: str) -> str:
    inner = folder.joinpath(*nodes_package.split("."), name)
    return f"{nodes_package}.{name}" if name and not plan.nodes and (inner / "__init__.py").is_file() else nodes_package


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


def host_packages(folder: Path, nodes_package: str, taken: Iterable[str]) -> list[str]:
    """Return the packages of nodes that a pack leaves in the host: folders beside those that are an environment's, `taken`."""
    taken = set(taken)
    if nodes_package in taken or not any(package.startswith(nodes_package + ".") for package in taken):
        return []
    inner = sorted(path.parent.name for path in folder.joinpath(*nodes_package.split(".")).glob("*/__init__.py"))
    return [package for name in inner if (package := f"{nodes_package}.{name}") not in taken]
