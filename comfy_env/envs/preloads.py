"""Which heavy modules the workers of an environment were seen to import: kept beside the environment's stamp."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from comfy_env.envs import paths, stamps
from comfy_env.envs.stamps import PRELOADS
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

log = logging.getLogger(__name__)
_FORMS = (".py", ".pyc", ".so", ".pyd")


def folder_of(plan: EnvPlan, settings: Settings) -> Path | None:
    """Return the folder of a plan's environment, None where none of ours was built: then nothing is kept."""
    folder = None if plan.interpreter else paths.env_folder(plan, settings)
    return folder if folder is not None and (folder / stamps.FILE).is_file() else None


def read(folder: Path) -> tuple[str, ...]:
    """Return the modules, none where nothing was kept or it cannot be read."""
    try:
        found = json.loads((folder / PRELOADS).read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", folder / PRELOADS, error)
        return ()
    return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()


def add(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Keep these modules too, and return all; a list that cannot be written is told and costs nothing else."""
    kept = read(folder)
    together = tuple(sorted({*kept, *names}))
    if set(together) == set(kept):
        return kept
    beside = folder / f".{PRELOADS}.{os.getpid()}"
    try:
        beside.write_text(json.dumps(together), encoding="utf-8")
        os.replace(beside, folder / PRELOADS)
    except OSError as error:
        log.warning("%s cannot be written: %s", folder / PRELOADS, error)
    return together


def not_shadowed(names: Iterable[str], roots: Iterable[Path]) -> tuple[str, ...]:
    """Return the modules that no folder of a pack has under the same name: a worker would import that one instead."""
    names = tuple(names)
    own = shadowed((name.partition(".")[0] for name in names), roots)
    return tuple(name for name in names if name.partition(".")[0] not in own)


def shadowed(tops: Iterable[str], roots: Iterable[Path]) -> tuple[str, ...]:
    """Return those of these top-level modules of which some folder has one under the same name, in whatever form, sorted."""
    wanted, own = set(tops), set[str]()
    for root in roots:
        with contextlib.suppress(OSError):   # there is nothing to import from
            own.update(top for entry in os.scandir(root) if (top := entry.name.partition(".")[0]) in wanted and _is_module(entry))
    return tuple(sorted(own))


def _is_module(entry: os.DirEntry[str]) -> bool:
    """Tell whether it is imported before another of its name; a folder without an `__init__` is not."""
    if "." in entry.name:
        return entry.name.endswith(_FORMS)
    return entry.is_dir() and any(name.startswith("__init__.") for name in os.listdir(entry))
