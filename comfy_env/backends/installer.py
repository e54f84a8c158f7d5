"""What the installers of Python packages share: their variables, their sources, and what must stay hidden."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from comfy_env.envs import interpreters, paths, sources, tool_env
from comfy_env.envs.interpreters import Found
from comfy_env.envs.journal import Journal
from comfy_env.envs.tools import Answer
from comfy_env.errors import BuildFailed
from comfy_env.packs.redact import clean, secrets_of
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

RESOLVE_SECONDS = 600.0
WHEELS_ONLY = "only wheels are installed: a package without one for this Python and platform needs allow-source-builds = true"
_OF_WHEELS = ("no wheels", "no usable wheels", "only has wheels", "wheels are available", "(from versions: none)", "building from source")
"""What uv and pip say where a package has no wheel that fits; pip says the second of a package it does not find at all, too."""


class Installer:
    """Makes virtual environments and installs into them. ``downloads``: it can also fetch a Python."""

    name = ""
    downloads = False

    def __init__(self, plan: EnvPlan, settings: Settings, index_url: str = "") -> None:
        selected = tool_env.select(tool_env.inherited())
        self.plan = plan
        self.cache = paths.office(settings)
        self.dropped = selected.dropped
        self.environ = selected.variables
        found, self._remark = sources.gather(plan.indexes, selected.variables)
        self.sources = replace(found, pip={**found.pip, "index-url": index_url}) if index_url else found

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is worth a line in the log."""
        left_out = f"variables left out: {', '.join(self.dropped)}" if self.dropped else ""
        return tuple(filter(None, [left_out, self._remark]))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Passwords and tokens of the indexes, to be hidden wherever they turn up."""
        urls = [part for name, value in self.environ.items() if name.startswith(("UV_", "PIP_")) for part in value.split()]
        named = [value for name, value in self.environ.items() if name.startswith("UV_INDEX_") and name.endswith("_PASSWORD")]
        return tuple(secret for secret in (*self.sources.secrets, *secrets_of(urls), *named) if len(secret) >= 6)

    def make(self, found: Found, target: Path, journal: Journal) -> Path:
        """Make an empty environment in the target folder and return its interpreter."""
        raise BuildFailed("no installer was chosen")

    def install(
        self, interpreter: Path, requirements: Sequence[str], indexes: Sequence[str], what: str, journal: Journal, more: Sequence[str] = ()
    ) -> None:
        """Install the requirements; raises BuildFailed. ``more`` are options that pip and uv know by the same name."""
        raise BuildFailed("no installer was chosen")

    def resolve(self, found: Found, requirements: Sequence[str]) -> dict[str, str]:
        """Return what an install would bring, name to version."""
        raise BuildFailed("no installer was chosen")

    def download(self, journal: Journal) -> Found:
        """Fetch a Python the plan allows; raises PlanError or BuildFailed."""
        raise interpreters.missing(self.plan, ())

    def hint(self, lines: Iterable[str]) -> str:
        """Return what to try when an install fails with these last lines: most failures have nothing to do with wheels."""
        said = "\n".join(lines).lower()
        wheels = any(word in said for word in _OF_WHEELS)
        return WHEELS_ONLY if wheels and not self.plan.allow_source_builds else ""

    def refused(self, answer: Answer, found: Found) -> BuildFailed:
        """Return the error of a resolution that failed."""
        lines = tuple(clean(line, self.secrets) for line in (answer.err or answer.out).splitlines() if line.strip())[-40:]
        return BuildFailed(
            f"the dependencies cannot be had together for Python {found.version} ({found.path})",
            env=self.plan.key, output=lines, hint=self.hint(lines),
        )

    def stays(self, cache: str) -> str:
        """Return the folder for the installer's cache: beside the environments, not in the home folder."""
        return os.fspath(self.cache / "cache" / cache)


def pinned(lines: str) -> dict[str, str]:
    """Return name to version of lines such as `name==1.0` and `name @ url`."""
    found: dict[str, str] = {}
    for line in lines.splitlines():
        text = line.split("#")[0].split(";")[0].strip() if " @ " not in line else line.strip()
        for mark in (" @ ", "=="):
            if mark in text:
                name, _, version = text.partition(mark)
                found[canonicalize_name(name.split("[")[0].strip())] = version.strip()
                break
    return found
