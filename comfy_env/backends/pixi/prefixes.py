"""Conda prefixes: where they lie in a build and in a pack, and what their own records say was installed."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

log = logging.getLogger(__name__)

FILE = "conda.json"


@dataclass(frozen=True)
class About:
    """What a prefix holds: package versions by name, where they came from, and each package's file and digest."""

    packages: tuple[tuple[str, str], ...] = ()
    channels: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def version(self, name: str) -> str:
        return dict(self.packages).get(canonicalize_name(name), "")


def prefix_in(folder: Path, environment: str) -> Path:
    """Return where pixi puts an environment of the workspace in the folder."""
    return folder / ".pixi" / "envs" / environment


def interpreter_of(prefix: Path) -> Path:
    return prefix / "python.exe" if os.name == "nt" else prefix / "bin" / "python"


def prefix_of(interpreter: Path) -> Path:
    return interpreter.parent if os.name == "nt" else interpreter.parents[1]


def build_of(prefix: Path) -> Path | None:
    """Return the folder of the workspace a prefix lies in, None for a prefix pixi did not lay out."""
    parents = prefix.parents
    return parents[2] if len(parents) > 2 and (parents[0].name, parents[1].name) == ("envs", ".pixi") else None


def look(prefix: Path) -> About:
    """Return what the prefix's own records say, read from its `conda-meta`."""
    found = [_record(file) for file in sorted((prefix / "conda-meta").glob("*.json"))]
    records = [record for record in found if record]
    return About(
        tuple(sorted((canonicalize_name(record["name"]), str(record["version"])) for record in records)),
        tuple(sorted({str(record["channel"]).rstrip("/") for record in records if record.get("channel")})),
        tuple(sorted(f"{record.get('url', '')}#{record.get('sha256') or record.get('md5') or ''}" for record in records)),
    )


def _record(file: Path) -> dict[str, Any]:
    """Return a package's record, {} for one that is damaged: what a prefix holds is told as far as it can be read."""
    try:
        said: dict[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read and is passed by: %s", file, error)
        return {}
    return said if "name" in said and "version" in said else {}


def write(folder: Path, about: About) -> None:
    """Keep it beside a build, together with the list of packages as text."""
    (folder / FILE).write_text(json.dumps(asdict(about), indent=1), encoding="utf-8")
    (folder / "packages.txt").write_text("".join(f"{line}\n" for line in about.files), encoding="utf-8")


def read(folder: Path) -> About | None:
    """Return what was kept beside a build, None where nothing was."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        said: dict[str, Any] = json.loads(file.read_bytes())
        return About(tuple((name, version) for name, version in said["packages"]), tuple(said["channels"]), tuple(said["files"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read: %s", file, error)
        return None
