"""The pixi manifest of a plan."""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement

from comfy_env.envs.sources import Sources
from comfy_env.errors import PlanError
from comfy_env.packs.redact import has_secret
from comfy_env.values import EnvPlan

FILE = "pixi.toml"
_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_MACHINES = {"x86_64": "64", "amd64": "64", "arm64": "arm64", "aarch64": "aarch64"}
_MATCH = re.compile(r"(?:(?P<channel>[\w./:-]+)::)?(?P<name>[\w.-]+)\s*(?P<version>[^\s\w].*|\d.*|)")


def text(plan: EnvPlan, more: tuple[str, ...], came_from: Sources) -> str:
    """Return the manifest; raises PlanError for what pixi cannot say."""
    channels = plan.conda.channels if plan.conda and plan.conda.channels else ("conda-forge",)
    conda = [_conda(plan, line) for line in (plan.conda.dependencies if plan.conda else ())]
    pypi = [_pypi(plan, line) for line in (*plan.dependencies, *more)]
    return "\n".join([
        "[workspace]", f"name = {_quote(plan.key)}", f"channels = {_list(channels)}", f"platforms = {_list((platform_here(),))}",
        "", "[dependencies]", f"python = {_quote(_python(plan))}", *conda,
        "", "[pypi-options]", *_options(plan, came_from),
        "", "[pypi-dependencies]", *pypi, "",
    ])


def platform_here() -> str:
    """Return conda's name of this machine's platform."""
    machine = platform.machine().lower()
    return f"{_SYSTEMS.get(sys.platform, sys.platform)}-{_MACHINES.get(machine, machine)}"


def _python(plan: EnvPlan) -> str:
    wanted = plan.python or ".".join(map(str, sys.version_info[:2]))
    return f"{wanted}.*" if re.fullmatch(r"\d+(\.\d+)?", wanted) else wanted


def _conda(plan: EnvPlan, line: str) -> str:
    match = _MATCH.fullmatch(line.strip())
    if match is None:
        raise PlanError(f"{line!r} is not a conda requirement", env=plan.key, hint='write "ffmpeg>=6,<7" or "channel::name 1.2.*"')
    version = _quote(match["version"].strip() or "*")
    channel = match["channel"]
    return f"{_quote(match['name'])} = " + (f"{{ version = {version}, channel = {_quote(channel)} }}" if channel else version)


def _pypi(plan: EnvPlan, line: str) -> str:
    wanted = Requirement(line)
    if wanted.marker:
        raise PlanError(f"pixi takes no marker: {line!r}", env=plan.key, hint="put the requirement under platform.<tag>")
    parts = [f"url = {_quote(wanted.url)}" if wanted.url else f"version = {_quote(str(wanted.specifier) or '*')}"]
    if wanted.extras:
        parts.append(f"extras = {_list(tuple(sorted(wanted.extras)))}")
    return f"{_quote(wanted.name)} = {{ {', '.join(parts)} }}"


def _options(plan: EnvPlan, came_from: Sources) -> list[str]:
    """Return where packages come from. The manifest lies on disk, so an index with credentials is not written into it."""
    main = came_from.pip.get("index-url", "")
    extra = tuple(url for url in (*came_from.indexes, *came_from.pip.get("extra-index-url", "").split()) if not has_secret(url))
    folders = ", ".join(f"{{ path = {_quote(str(Path(folder)))} }}" for folder in came_from.folders)
    lines = [
        "" if plan.allow_source_builds else "no-build = true",
        f"index-url = {_quote(main)}" if main and not has_secret(main) else "",
        f"extra-index-urls = {_list(extra)}" if extra else "",
        f"find-links = [{folders}]" if folders else "",
    ]
    return [line for line in lines if line]


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(values: tuple[str, ...]) -> str:
    return f"[{', '.join(_quote(value) for value in values)}]"
