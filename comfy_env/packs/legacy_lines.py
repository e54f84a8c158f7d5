"""The lists of a `comfy-env.toml`, said as conda requirements, Python requirements and references to other packs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from comfy_env.packs import pixi_specs, requirements
from comfy_env.packs.document import Document
from comfy_env.packs.wrong import Wrong

Places = list[tuple[str, ...]]


def conda(document: Document, places: Places) -> Iterator[str]:
    """Yield the conda requirements in the plan's form; raises PlanError."""
    for path in places:
        yield _said(document, path, _conda)


def _conda(name: str, value: Any) -> str:
    pixi_specs.conda(name, value)
    parts = value if isinstance(value, dict) else {"version": value}
    more = [key for key in parts if key not in ("version", "channel")]
    if more:
        raise Wrong(f"{more[0]!r} of {name} is not known here", "write {version = …, channel = …}")
    version = str(parts.get("version", "*")).strip()
    named = name if version in ("", "*") else f"{name} {version}" if version[0].isdigit() else f"{name}{version}"
    return f"{parts['channel']}::{named}" if parts.get("channel") else named


def pypi(document: Document, places: Places) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requirements and the indexes they name; raises PlanError."""
    found = [_said(document, path, pixi_specs.pypi) for path in places]
    return tuple(line for line, _ in found), tuple(dict.fromkeys(index for _, index in found if index))


def cuda(document: Document) -> tuple[str, ...]:
    """Return the packages to be looked up in the index of CUDA wheels; raises PlanError."""
    return tuple(_said(document, ("cuda", "packages", str(number)), lambda _, value: requirements.cuda_wheel(value), value)
                 for number, value in enumerate(document.table("cuda").get("packages") or []))


def node_packs(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the other packs a pack asks for: name and where it is."""
    for table in ("node_packs", "node_reqs"):
        for name, value in document.table(table).items():
            parts = value if isinstance(value, dict) else {"github": value}
            yield name, " ".join(f"{key}={part}" for key, part in parts.items())


def _said(document: Document, path: tuple[str, ...], say: Any, value: Any = None) -> Any:
    value = document.table(*path[:-1])[path[-1]] if value is None else value
    try:
        return say(path[-1], value)
    except Wrong as wrong:
        raise document.problem(path, wrong.what, wrong.hint) from None
