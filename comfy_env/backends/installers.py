"""Which installer of Python packages is used: uv where one runs, else pip; and how both are asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comfy_env.backends import uv
from comfy_env.backends.installer import Installer
from comfy_env.backends.pip import Pip
from comfy_env.envs.host_torch import Wish
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildCancelled, BuildFailed
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan


def choose(plan: EnvPlan, settings: Settings, index_url: str = "") -> Installer:
    """Return the installer for a plan; ``index_url`` replaces the main index pip is set up with."""
    program = uv.find(settings)
    return uv.Uv(plan, settings, *program, index_url) if program else Pip(plan, settings, index_url)


def install(
    installer: Installer, interpreter: Path, lines: tuple[str, ...], wishes: tuple[Wish, ...], journal: Journal,
    more: Sequence[str] = (), indexes: tuple[str, ...] = (),
) -> None:
    """Install requirements with the first wish for torch that can be had; raises BuildFailed."""
    for number, wish in enumerate(wishes, start=1):
        for remark in wish.remarks:
            journal.say(remark)
        wanted = tuple(dict.fromkeys((*lines, *wish.requirements)))
        what = f"installing {len(wanted)} Python requirements"
        try:
            if wanted:
                installer.install(interpreter, wanted, (*indexes, *wish.indexes), what, journal, more)
            return
        except BuildFailed as error:
            if number == len(wishes) or isinstance(error, BuildCancelled):
                raise
            journal.say(f"not to be had: {error.message}")
