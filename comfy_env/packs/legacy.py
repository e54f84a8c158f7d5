"""Packs written for `comfy-env.toml`: their environments as plans, and what of such a file this package does not do.

A file lies in `nodes/`, in a folder below it, or in the pack's own folder; each is one environment. Such files never
name torch: they mean the host's, at the host's version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfy_env.packs import document as documents
from comfy_env.packs import fields, legacy_lines
from comfy_env.packs.document import Document
from comfy_env.packs.pixi_platforms import here, targets
from comfy_env.packs.wrong import Wrong
from comfy_env.values import Conda

FILE = "comfy-env.toml"
ROOT_FILE = "comfy-env-root.toml"
NODES = "nodes"
CODECS = "serialization.py"
_ENV = ("python", "workspace", "dependencies", "pypi-dependencies", "target", "cuda", "env_vars", "options")
_ROOT = ("node_packs", "node_reqs", "types", "apt", "brew")
_NOT_DONE = {
    "apt": "packages of the system are not installed", "brew": "packages of the system are not installed",
    "node_packs": "other node packs are not installed", "node_reqs": "other node packs are not installed",
}


@dataclass(frozen=True)
class LegacyEnv:
    """One environment. ``name`` is '' for the pack's only one, ``folder`` holds its nodes, ``values`` are the plan's fields."""

    name: str
    folder: Path
    source: str
    values: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LegacyRoot:
    """What a pack says of itself as a whole. ``types`` maps each type to how it travels."""

    node_packs: tuple[tuple[str, str], ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def declares(folder: Path) -> bool:
    """Return whether a pack declares environments in the older way."""
    return bool(_files(folder))


def envs(folder: Path) -> tuple[LegacyEnv, ...]:
    """Return the environments of a pack; raises PlanError with file and line."""
    files = _files(folder)
    found = [(_name(folder, file, files), _read(file)) for file in files]
    return tuple(_env(name, document) for name, document in found if _is_env(document) or len(files) == 1)


def package(pack: Path, folder: Path) -> str:
    """Return a folder of nodes as a package relative to its pack, '' for the pack's own folder."""
    return ".".join(folder.resolve().relative_to(pack.resolve()).parts)


def codecs(folder: Path) -> Path | None:
    """Return the file with a pack's own codecs, None for a pack that says of no type that it has one."""
    file = folder / CODECS
    return file if file.is_file() and any(how == "custom" for _, how in root(folder).types) else None


def root(folder: Path) -> LegacyRoot:
    """Return what the pack's root files say; raises PlanError with file and line."""
    found = [_read(folder / name) for name in (ROOT_FILE, FILE) if (folder / name).is_file()]
    packs = [entry for document in found for entry in legacy_lines.node_packs(document)]
    types = [(name, str(how)) for document in found for name, how in document.table("types").items()]
    notes = [note for document in found for note in _left_out(document)]
    notes += [note for document in found if document.file.name == ROOT_FILE for note in _root_only(document)]
    return LegacyRoot(tuple(packs), tuple(types), tuple(notes))


def notes(folder: Path) -> tuple[str, ...]:
    """Return what the pack's older files ask for that is not done by us, each once."""
    return tuple(dict.fromkeys([note for env in envs(folder) for note in env.notes] + list(root(folder).notes)))


def _files(folder: Path) -> tuple[Path, ...]:
    nodes = folder / NODES
    listed = [nodes / FILE, *sorted(nodes.glob(f"*/{FILE}")), folder / FILE]
    return tuple(file for file in listed if file.is_file())


def _name(folder: Path, file: Path, files: tuple[Path, ...]) -> str:
    """Return the environment's name: the folder below `nodes`, '' where the pack has one environment only."""
    alone = len(files) == 1 or file.parent == folder
    return "" if alone or file.parent == folder / NODES else file.parent.name


def _read(file: Path) -> Document:
    return documents.parse(file, file.read_bytes())


def _is_env(document: Document) -> bool:
    return any(key in document.data for key in _ENV)


def _env(name: str, document: Document) -> LegacyEnv:
    if not _is_env(document) and not any(key in document.data for key in _ROOT):
        raise document.problem((), "nothing in it is known", "this is another generation of the format: write a [tool.comfy-env] table")
    conda = tuple(_conda(document))
    pypi, indexes = _pypi(document)
    cuda = legacy_lines.cuda(document)
    values: dict[str, Any] = {
        "backend": "pixi" if conda else "venv", "torch": "host", "dependencies": (*pypi, *cuda), "indexes": indexes,
        "variables": _variables(document), "limits": _limits(document),
    }
    if "python" in document.data:
        values["python"] = _checked(document, ("python",), fields.python)
    if conda:
        values["conda"] = Conda(_channels(document), conda)
    return LegacyEnv(name, document.file.parent, f"{document.file}:1", values, tuple(_left_out(document)))


def _conda(document: Document) -> Iterator[str]:
    yield from legacy_lines.conda(document, _tables(document, "dependencies"))


def _pypi(document: Document) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return legacy_lines.pypi(document, _tables(document, "pypi-dependencies"))


def _tables(document: Document, kind: str) -> list[tuple[str, ...]]:
    """Return where each entry of a kind stands that holds on this platform; a target's replaces the general one."""
    places = [(kind,), *(("target", target, kind) for target in targets(here()))]
    last = {name: (*keys, name) for keys in places for name in document.table(*keys)}
    return list(last.values())


def _channels(document: Document) -> tuple[str, ...]:
    listed = document.table("workspace").get("channels") or ["conda-forge"]
    conda = _checked(document, ("workspace", "channels"), fields.conda, {"channels": listed})
    return conda.channels


def _variables(document: Document) -> tuple[tuple[str, str], ...]:
    given = {name: str(value) for name, value in document.table("env_vars").items()}
    return _checked(document, ("env_vars",), fields.variables, given)


def _limits(document: Document) -> tuple[tuple[str, float], ...]:
    seconds = document.table("options").get("health_check_timeout")
    return () if seconds is None else _checked(document, ("options", "health_check_timeout"), fields.limits, {"ping": seconds})


def _checked(document: Document, path: tuple[str, ...], check: Any, value: Any = None) -> Any:
    value = document.data[path[0]] if value is None else value
    try:
        return check(value)
    except Wrong as wrong:
        raise document.problem((*path, *map(str, wrong.at)), f"{'.'.join(path)}: {wrong.what}", wrong.hint) from None


def _left_out(document: Document) -> Iterator[str]:
    for key in document.data:
        if key in _NOT_DONE:
            yield f"{document.place((key,))}: [{key}] is not done by us: {_NOT_DONE[key]}"
        elif key not in (*_ENV, *_ROOT):
            yield f"{document.place((key,))}: [{key}] is not known"


def _root_only(document: Document) -> Iterator[str]:
    """Yield what a root file says of the host's own environment, which nothing of ours changes."""
    for key in ("python", "dependencies", "pypi-dependencies", "cuda"):
        if key in document.data:
            yield f"{document.place((key,))}: [{key}] is not done by us: the host's environment is never changed"
