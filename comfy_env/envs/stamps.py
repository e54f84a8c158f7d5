"""The stamp of a built environment: what it was built from, where, and which of the builds in its folder is in use.

Replacing the stamp's file is the swap: it is one rename, so an environment is the old one or the new one at any moment
and a build killed half-way changes nothing. No secret is ever in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from comfy_env.packs.redact import clean
from comfy_env.values import EnvPlan

FILE = "comfy-env.json"
PRELOADS = "comfy-env.imports.json"   # see `preloads`
SCHEMA = 1


@dataclass(frozen=True)
class Stamp:
    """What is known of a built environment. ``interpreter`` is relative to its folder."""

    key: str
    plan: str
    folder: str
    build: str
    interpreter: str
    python: str
    base: str
    tool: str
    built: str
    packages: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


def read(folder: Path) -> tuple[Stamp | None, str]:
    """Return the folder's stamp and what is wrong with it: (None, '') where there is none."""
    try:
        return _parsed(json.loads((folder / FILE).read_bytes())), ""
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"its stamp {folder / FILE} cannot be read: {error}"


def write(folder: Path, stamp: Stamp) -> None:
    """Make the stamp the folder's, atomically and durably."""
    beside = folder / f".{FILE}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as out:
        json.dump(asdict(stamp), out, indent=1, sort_keys=True)
        out.flush()
        os.fsync(out.fileno())
    os.replace(beside, folder / FILE)


def plan_hash(plan: EnvPlan, torch: str = "") -> str:
    """Return a digest of everything in the plan that decides what is built; ``torch`` is the resolved host version.

    Not of its `python`: that says which Pythons are allowed, and the stamp says which one it is.
    """
    conda = asdict(plan.conda) if plan.conda else None
    parts = [
        SCHEMA, plan.backend, sorted(plan.dependencies), plan.torch, torch,
        [clean(index) for index in plan.indexes], conda, plan.allow_source_builds, plan.comfy,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _parsed(data: Any) -> Stamp:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError("it was written by another version")
    known = {f.name for f in fields(Stamp)}
    missing = known - set(data)
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    return Stamp(**{name: data[name] for name in known})
