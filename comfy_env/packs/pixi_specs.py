"""Single dependencies of a pixi manifest, said as conda match specs and as Python requirements."""

from __future__ import annotations

import re
from typing import Any

from comfy_env.packs import requirements
from comfy_env.packs.wrong import Wrong

_CONDA_PARTS = {"version": "version", "build": "build", "build-number": "build_number", "channel": "channel", "subdir": "subdir",
                "md5": "md5", "sha256": "sha256", "file-name": "fn", "license": "license"}
_SOURCES = ("path", "git", "url", "branch", "tag", "rev", "subdirectory", "lfs")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def conda(name: str, value: Any) -> str:
    """Return the match spec of an entry of a `dependencies` table; raises Wrong."""
    if not _NAME.fullmatch(name):
        raise Wrong(f"{name!r} is not a conda package")
    if isinstance(value, str):
        value = {"version": value}
    if not isinstance(value, dict):
        raise Wrong(f"must be a version or a table, not {value!r}")
    source = next((key for key in value if key in _SOURCES), "")
    if source:
        raise Wrong(f"{name} comes from a {source}: packages that are built from sources need pixi itself")
    unknown = next((key for key in value if key not in _CONDA_PARTS), "")
    if unknown:
        raise Wrong(f"{unknown!r} of {name} needs pixi itself")
    parts = [f"{_CONDA_PARTS[key]}={_quoted(part)}" for key, part in value.items() if str(part).strip() not in ("", "*")]
    return f"{name}[{','.join(parts)}]" if parts else name


def _quoted(part: Any) -> str:
    text = str(part).strip()
    if re.search(r"[\"'\x00-\x1f\]]", text):
        raise Wrong(f"{text!r} cannot be part of a match spec")
    return f'"{text}"'


def pypi(name: str, value: Any, source_builds: bool = False) -> tuple[str, str]:
    """Return the requirement of an entry of a `pypi-dependencies` table and the index it names; raises Wrong."""
    if isinstance(value, str):
        value = {"version": value}
    if not isinstance(value, dict):
        raise Wrong(f"must be a version or a table, not {value!r}")
    unknown = next((key for key in value if key not in ("version", "extras", "index", "url", "git", "rev", "branch", "tag")), "")
    if unknown:
        raise Wrong(f"{unknown!r} of {name} cannot be had here", "name a released version of the package")
    extras = f"[{','.join(map(str, value['extras']))}]" if value.get("extras") else ""
    line = f"{name}{extras}{_where(value)}"
    return requirements.check(line, source_builds), requirements.check_index(value["index"]) if value.get("index") else ""


def _where(value: dict[str, Any]) -> str:
    if "url" in value:
        return f" @ {value['url']}"
    if "git" in value:
        point = value.get("rev") or value.get("tag") or value.get("branch")
        return f" @ git+{value['git']}" + (f"@{point}" if point else "")
    version = str(value.get("version", "*")).strip()
    if version in ("", "*"):
        return ""
    return f"=={version}" if version[0].isdigit() else version
