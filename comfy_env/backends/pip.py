"""Building with the standard library's venv and pip."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from comfy_env.backends.installer import RESOLVE_SECONDS, Installer
from comfy_env.envs import paths, swap, tools
from comfy_env.envs.interpreters import Found
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

_QUIET = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]


class Pip(Installer):
    """venv and pip: slower, and there with every complete Python."""

    name = "venv and pip"

    def __init__(self, plan: EnvPlan, settings: Settings, index_url: str = "") -> None:
        super().__init__(plan, settings, index_url)
        self._variables = {"PIP_CACHE_DIR": self.stays("pip"), **self.sources.for_pip(self.environ)}

    def make(self, found: Found, target: Path, journal: Journal) -> Path:
        what = f"making an environment of Python {found.version}"
        try:
            journal.run(what, [found.path, "-I", "-m", "venv", target], self._variables, target.parent)
        except BuildFailed as error:   # some systems ship Python without ensurepip: this host's own pip serves then
            journal.note(f"again without pip: {error.message}")
            swap.delete(target)
            journal.run(what, [found.path, "-I", "-m", "venv", "--without-pip", target], self._variables, target.parent)
        return paths.interpreter_in(target)

    def install(
        self, interpreter: Path, requirements: Sequence[str], indexes: Sequence[str], what: str, journal: Journal, more: Sequence[str] = ()
    ) -> None:
        extra = [part for index in indexes for part in ("--extra-index-url", index)]
        argv = [*_pip_for(interpreter), "install", *_QUIET, "--no-warn-script-location", *self._options(), *extra, *more, *requirements]
        journal.run(what, argv, self._variables, interpreter.parent, self.hint)

    def resolve(self, found: Found, requirements: Sequence[str]) -> dict[str, str]:
        if not requirements:
            return {}
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", "-", *_QUIET, *self._options()]
        answer = tools.ask([*_pip_for(found.path), "install", *options, *requirements], RESOLVE_SECONDS, self._variables)
        if answer.trouble:
            raise self.refused(answer, found)
        items = [item["metadata"] for item in json.loads(answer.out)["install"]]
        return {canonicalize_name(item["name"]): item["version"] for item in items}

    def _options(self) -> list[str]:
        wheels_only = [] if self.plan.allow_source_builds else ["--only-binary", ":all:"]
        return [*wheels_only, *self.sources.folder_options()]


def _pip_for(interpreter: Path) -> list[str]:
    """Return the pip of the interpreter, or this host's own told to work for it."""
    own = tools.ask([interpreter, "-I", "-m", "pip", "--version"], 30)
    return [str(interpreter), "-I", "-m", "pip"] if not own.trouble else [sys.executable, "-m", "pip", "--python", str(interpreter)]
