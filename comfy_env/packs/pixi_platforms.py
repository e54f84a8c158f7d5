"""Platforms as conda and pixi name them, and what a manifest asks of the machine."""

from __future__ import annotations

import platform as machine
import sys
from typing import Any

from comfy_env.errors import PlatformMissing
from comfy_env.packs.pixi_manifest import Keys, Manifest

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_MACHINES = {"x86_64": "64", "amd64": "64", "arm64": "arm64", "aarch64": "aarch64"}
_HINT = "install pixi and put it on PATH"
_VIRTUAL = {"cuda": "__cuda", "archspec": "__archspec", "glibc": "__glibc", "libc": "__glibc", "linux": "__linux", "macos": "__osx",
            "osx": "__osx", "windows": "__win"}


def here() -> str:
    """Return conda's name of this machine's platform."""
    name = machine.machine().lower()
    return f"{_SYSTEMS.get(sys.platform, sys.platform)}-{_MACHINES.get(name, name)}"


def targets(platform: str) -> tuple[str, ...]:
    """Return the names of `target` tables that hold on a platform, the general one first."""
    system = platform.split("-")[0]
    return (*(["unix"] if system in ("linux", "osx") else []), system, platform)


def needs_of(manifest: Manifest, parts: tuple[Keys, ...], platform: str) -> tuple[tuple[str, str], ...]:
    """Return the virtual packages the machine must offer; raises PlatformMissing where the platform is not declared."""
    at = (*manifest.workspace, "platforms")
    entries = [_entry(entry) for entry in manifest.get(at) or []]
    fitting = [entry for entry in entries if entry["platform"] == platform and all(_named(manifest, part, entry) for part in parts)]
    if not fitting:
        raise _undeclared(manifest, at, platform, [entry["name"] for entry in entries])
    found = {key: value for key, value in fitting[0].items() if key not in ("name", "platform")}
    for part in reversed(parts):
        found.update(manifest.table((*part, "system-requirements")))
    return tuple(_need(manifest, key, value) for key, value in found.items())


def _undeclared(manifest: Manifest, at: Keys, platform: str, names: list[str]) -> PlatformMissing:
    return PlatformMissing(
        f"{manifest.document.place((*manifest.base, *at))}: the environment is not declared for {platform}",
        hint=f"its platforms are {', '.join(dict.fromkeys(names)) or 'none'}; the author adds {platform} to platforms",
    )


def _entry(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"name": entry, "platform": entry}
    platform = entry.get("platform", entry.get("name", ""))
    return {**entry, "name": entry.get("name", platform), "platform": platform}


def _named(manifest: Manifest, part: Keys, entry: dict[str, Any]) -> bool:
    """Return whether a feature takes part on a platform; one that names none takes part on all."""
    listed = manifest.get((*part, "platforms")) if part else None
    return listed is None or entry["name"] in listed or entry["platform"] in listed


def _need(manifest: Manifest, key: str, value: Any) -> tuple[str, str]:
    if isinstance(value, dict):
        family = value.get("family", "glibc")
        if key != "libc" or family != "glibc":
            raise manifest.problem(("system-requirements", key), f"{key} = {value!r} needs pixi itself", _HINT)
        value = value.get("version", "")
    name = key if key.startswith("__") else _VIRTUAL.get(key, "")
    if not name:
        raise manifest.problem(("system-requirements", key), f"the system requirement {key!r} needs pixi itself", _HINT)
    return name, str(value)
