"""Building with uv."""

from __future__ import annotations

import os
import shutil
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path

from comfy_env.backends.installer import RESOLVE_SECONDS, Installer, pinned
from comfy_env.envs import interpreters, paths, probes, tools
from comfy_env.envs.interpreters import Found
from comfy_env.envs.journal import Journal
from comfy_env.errors import PlanError
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan


def find(settings: Settings) -> tuple[Path, str] | None:
    """Return a uv that runs and its version, None without one; raises PlanError where the setting names one that fails."""
    if settings.uv == "off":
        return None
    for path in [Path(settings.uv)] if settings.uv else _places():
        answer = tools.ask([path, "--version"], 20)
        if not answer.trouble:
            return path, " ".join(answer.out.split()[:2])
        if settings.uv:
            raise PlanError(f"COMFY_ENV_UV={settings.uv}: {answer.trouble}", hint="name a uv that runs, or 'off' to use venv and pip")
    return None


_ASKING = threading.Lock()
"""Two threads that ask sysconfig for the first time at once can see it half made (CPython 3.10, 3.11)."""


def _places() -> list[Path]:
    """Return where uv may be: on PATH, or where the wheel of that name puts it."""
    with _ASKING:
        return _look()


def _look() -> list[Path]:
    on_path = shutil.which("uv")
    user = sysconfig.get_preferred_scheme("user")
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", user)]
    name = "uv.exe" if os.name == "nt" else "uv"
    found = [Path(folder) / name for folder in folders if folder and (Path(folder) / name).is_file()]
    return [*([Path(on_path)] if on_path else []), *found]


class Uv(Installer):
    """uv: fast, shares files between environments, can fetch a Python."""

    downloads = True

    def __init__(self, plan: EnvPlan, settings: Settings, program: Path, version: str, index_url: str = "") -> None:
        super().__init__(plan, settings, index_url)
        self.name = version
        self._program = program
        self._variables = {
            "UV_CACHE_DIR": self.stays("uv"), "UV_PYTHON_INSTALL_DIR": os.fspath(paths.office(settings) / "pythons"),
            **self._credentials(),
            **self.sources.for_uv(self.environ), "UV_PYTHON_INSTALL_BIN": "0", "UV_NO_PROGRESS": "1",
        }

    def make(self, found: Found, target: Path, journal: Journal) -> Path:
        argv = [self._program, "venv", "--quiet", "--no-project", "--python", found.path, target]
        journal.run(f"making an environment of Python {found.version}", argv, self._variables, target.parent)
        return paths.interpreter_in(target)

    def install(
        self, interpreter: Path, requirements: Sequence[str], indexes: Sequence[str], what: str, journal: Journal, more: Sequence[str] = ()
    ) -> None:
        argv = [self._program, "pip", "install", "--python", interpreter, *self._options(indexes), *more, *requirements]
        journal.run(what, argv, self._variables, interpreter.parent, self.hint)

    def resolve(self, found: Found, requirements: Sequence[str]) -> dict[str, str]:
        argv = [self._program, "pip", "compile", "-", "--python", found.path, "--no-header", "--no-annotate", *self._options(())]
        answer = tools.ask(argv, RESOLVE_SECONDS, self._variables, text="\n".join(requirements))
        if answer.trouble:
            raise self.refused(answer, found)
        return pinned(answer.out)

    def download(self, journal: Journal) -> Found:
        wanted = self.plan.python or ""
        argv = [self._program, "python", "install", wanted]
        journal.run(f"fetching Python {wanted}", argv, self._variables, self.cache)
        where = [self._program, "python", "find", "--managed-python", "--no-project", wanted]
        path = Path(tools.ask(where, 60, self._variables).out.strip())
        facts = probes.look(path)
        if facts.trouble or not interpreters.wanted(self.plan).contains(facts.version):
            raise interpreters.missing(self.plan, (f"{path}: {facts.trouble or facts.version}",))
        return Found(path, facts.version)

    def _credentials(self) -> dict[str, str]:
        """Keep uv from making its store of credentials in the home folder; one that is there is used."""
        data = Path(self.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        return {} if (data / "uv" / "credentials").exists() else {"UV_CREDENTIALS_DIR": self.stays("uv-credentials")}

    def _options(self, indexes: Sequence[str]) -> list[str]:
        wheels_only = [] if self.plan.allow_source_builds else ["--no-build"]
        return [*wheels_only, *self.sources.folder_options(), *(part for index in indexes for part in ("--index", index))]
