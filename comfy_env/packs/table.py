"""The `[tool.comfy-env]` table: its schema, and the reading of it into plain fields with file and line in every error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from comfy_env.packs import fields
from comfy_env.packs.document import Document
from comfy_env.packs.platforms import TAGS, tags_here
from comfy_env.packs.wrong import Wrong, did_you_mean

ROOT = ("tool", "comfy-env")

CHECKS: dict[str, Callable[[Any], Any]] = {
    "backend": fields.text,
    "python": fields.python,
    "dependencies": fields.each(fields.requirement),
    "nodes": fields.each(fields.text),
    "torch": fields.choice("own", "host", "none"),
    "indexes": fields.indexes,
    "conda": fields.conda,
    "env": fields.variables,
    "secrets": fields.each(fields.variable),
    "device": fields.text,
    "limits": fields.limits,
    "allow-source-builds": fields.flag,
    "api": fields.api,
    "comfy": fields.flag,
    "fallback": fields.choice("in-process"),
}
"""Each key of the table and its checker; `platform` and `envs` hold further tables of these."""

MEANT = {
    "requirements": "dependencies", "packages": "dependencies", "deps": "dependencies", "pip": "dependencies",
    "python-version": "python", "requires-python": "python", "variables": "env", "environment": "env",
    "index-url": "indexes", "extra-index-url": "indexes", "channels": "conda",
}


@dataclass(frozen=True)
class Declared:
    """One environment as its table declares it: '' names the only one of a pack."""

    name: str
    values: dict[str, Any]
    source: str


def declares(document: Document) -> bool:
    """Return whether the document has a `[tool.comfy-env]` table."""
    return "comfy-env" in document.table("tool")


def read(document: Document, tags: tuple[str, ...] | None = None) -> tuple[Declared, ...]:
    """Return the environments of the document, checked; ``tags`` are the platform's (default: this machine's)."""
    tags = tags_here() if tags is None else tags
    table = document.table(*ROOT)
    if "envs" not in table:
        return (_one(document, "", ROOT, table, tags),)
    both = [key for key in table if key not in ("envs", "api")]
    if both:
        raise document.problem((*ROOT, both[0]), f"{both[0]!r} stands beside envs", "move it into each [tool.comfy-env.envs.NAME]")
    shared = {"api": table["api"]} if "api" in table else {}
    envs = document.table(*ROOT, "envs")
    if not envs:
        raise document.problem((*ROOT, "envs"), "envs declares no environment", "write [tool.comfy-env.envs.NAME]")
    return tuple(_one(document, name, (*ROOT, "envs", name), {**shared, **document.table(*ROOT, "envs", name)}, tags) for name in envs)


def _one(document: Document, name: str, path: tuple[str, ...], table: dict[str, Any], tags: tuple[str, ...]) -> Declared:
    if not name.isprintable():
        raise document.problem(path, f"{name!r} cannot be an environment's name", "use letters, digits, '-', '_' and '.'")
    overrides = table.get("platform", {})
    if not isinstance(overrides, dict):
        raise document.problem((*path, "platform"), "platform must be a table of tables", "write [tool.comfy-env.platform.linux]")
    for tag in overrides:
        if tag not in TAGS:
            raise document.problem((*path, "platform", tag), f"unknown platform {tag!r}", did_you_mean(tag, TAGS))
    own = _checked(document, path, {k: v for k, v in table.items() if k != "platform"})
    parts = {tag: _checked(document, (*path, "platform", tag), part, own) for tag, part in overrides.items()}
    for tag in tags:
        own.update(parts.get(tag, {}))
    return Declared(name, own, document.place(path))


def _checked(document: Document, path: tuple[str, ...], table: Any, around: dict[str, Any] | None = None) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise document.problem(path, f"{path[-1]} must be a table, not {table!r}")
    built = {**(around or {}), **table}.get("allow-source-builds") is True
    return {key: _field(document, (*path, key), key, value, built) for key, value in table.items()}


def _field(document: Document, path: tuple[str, ...], key: str, value: Any, source_builds: bool) -> Any:
    if key not in CHECKS:
        hint = f"did you mean {MEANT[key]!r}?" if key in MEANT else did_you_mean(key, [*CHECKS, "platform", "envs"])
        raise document.problem(path, f"unknown key {key!r}", hint)
    check = CHECKS[key]
    if key == "dependencies" and source_builds:
        check = fields.each(fields.requirement_or_source)
    try:
        return check(value)
    except Wrong as wrong:
        raise document.problem((*path, *wrong.at), f"{'.'.join([key, *map(str, wrong.at)])}: {wrong.what}", wrong.hint) from None
