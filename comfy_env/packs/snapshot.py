"""What is known of a pack's classes without importing it: data only, written as JSON.

A snapshot is taken by importing the pack in its own environment; see `comfy_env.comfyui.snapshot`. One that was taken from
other sources, another environment or another core is stale: it still serves, and the next worker takes it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

SCHEMA = 1
SHIPPED = "comfy-env-snapshot.json"
"""The file in a pack's folder that its author may ship, for users who have not built the environment yet."""


@dataclass(frozen=True)
class Key:
    """What a snapshot depends on."""

    sources: str = ""
    env: str = ""
    core: str = ""
    ours: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A pack's description. ``origin``: "env" (imported), "pack" (shipped) or "sources" (read without running)."""

    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    web: Any = None
    registered: tuple[Any, ...] = ()
    python: str = ""
    torch: bool = True
    key: Key = Key()
    origin: str = "env"

    @classmethod
    def of(cls, description: Mapping[str, Any], key: Key) -> Snapshot:
        """Return the snapshot that a worker's description gives."""
        return cls(
            nodes=description.get("nodes", {}),
            names=description.get("names", {}),
            web=description.get("web"),
            registered=tuple(description.get("registered", ())),
            python=str(description.get("python", "")),
            torch=bool(description.get("torch", True)),
            key=key,
        )

    def only(self, names: Iterable[str]) -> Snapshot:
        """Return the snapshot with these classes alone."""
        kept = set(names)
        return Snapshot(
            {name: node for name, node in self.nodes.items() if name in kept},
            {name: text for name, text in self.names.items() if name in kept},
            self.web, self.registered, self.python, self.torch, self.key, self.origin,
        )

    def with_more(self, other: Snapshot) -> Snapshot:
        """Return the snapshot with the classes of another environment of the same pack beside its own."""
        return replace(self, nodes={**self.nodes, **other.nodes}, names={**self.names, **other.names},
                       registered=tuple(dict.fromkeys(map(tuple, (*self.registered, *other.registered)))))


def read(path: Path, origin: str = "env") -> Snapshot | None:
    """Return the snapshot in a file; None where there is none of this version."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(page, dict) or page.get("schema") != SCHEMA or not isinstance(page.get("nodes"), dict):
        return None
    key = page.get("key") or {}
    known = Key(**{name: str(key.get(name, "")) for name in ("sources", "env", "core", "ours")})
    return Snapshot(page["nodes"], page.get("names") or {}, page.get("web"), tuple(page.get("registered") or ()),
                    str(page.get("python", "")), bool(page.get("torch", True)), known, origin)


def write(path: Path, snapshot: Snapshot) -> None:
    """Write the snapshot, whole or not at all."""
    page = {
        "schema": SCHEMA, "key": asdict(snapshot.key), "python": snapshot.python, "torch": snapshot.torch, "web": snapshot.web,
        "registered": list(snapshot.registered), "names": dict(snapshot.names), "nodes": dict(snapshot.nodes),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(page, indent=1), encoding="utf-8")
    os.replace(beside, path)


def sources_key(folder: Path) -> str:
    """Return a digest of a pack's Python files and of its `pyproject.toml`, by content."""
    digest = hashlib.sha256()
    for path in _sources(folder):
        digest.update(path.relative_to(folder).as_posix().encode("utf-8", "surrogatepass"))
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _sources(folder: Path) -> list[Path]:
    found = [folder / "pyproject.toml"] if (folder / "pyproject.toml").is_file() else []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")) and name not in ("node_modules", "web"))
        found += [Path(place, name) for name in sorted(files) if name.endswith(".py")]
    return found
