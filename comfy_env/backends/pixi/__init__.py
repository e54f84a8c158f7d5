"""Workers in pixi environments: one that is there is used as it is, else pixi makes one from the plan or its manifest.

Nothing is written into the pack's folder: its manifest is copied to where the environment is built.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from comfy_env.backends.pixi import manifest
from comfy_env.backends.provisioning import ProvisioningBackend
from comfy_env.envs import host_torch, paths, probes, sources, stamps, tool_env, tools
from comfy_env.envs.build import Made
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed
from comfy_env.settings import Settings
from comfy_env.values import Changes, EnvPlan, EnvState, EnvStatus

MATERIALISED = Path(".pixi", "envs", "default")
HOW = "install pixi (https://pixi.sh) and put it on PATH, or name it in COMFY_ENV_PIXI; no package of a Python index is it"


class PixiBackend(ProvisioningBackend):
    """One pixi environment per plan."""

    def look(self, plan: EnvPlan, settings: Settings, probe: bool) -> EnvState:
        made = materialised(plan)
        if made is None:
            return super().look(plan, settings, probe)
        facts = probes.probe(made, plan.dependencies) if probe else probes.Facts()
        status = EnvStatus.BROKEN if facts.trouble else EnvStatus.READY
        fix = f"pixi install --manifest-path {plan.root}" if facts.trouble else ""
        return EnvState(plan.key, status, made, made.parents[1] if os.name != "nt" else made.parent, facts.trouble, fix)

    def wanted(self, plan: EnvPlan) -> str:
        torch = host_torch.host_version() if plan.torch == "host" else ""
        own = b"".join(file.read_bytes() for file in _given(plan))
        return hashlib.sha256(stamps.plan_hash(plan, torch).encode() + own).hexdigest()

    def make(self, plan: EnvPlan, settings: Settings, target: Path, journal: Journal) -> Made:
        program, version = find(plan, settings)
        selected = tool_env.select(tool_env.inherited())
        came_from, remark = sources.gather(plan.indexes, selected.variables)
        journal.secrets = came_from.secrets
        journal.note(f"variables left out: {', '.join(selected.dropped)}; {remark}")
        target.mkdir()
        _lay(plan, settings, target, came_from, journal)
        argv = [program, "install", "--manifest-path", target / manifest.FILE]
        journal.run("installing with pixi", argv, _variables(selected.variables, settings), target)
        return Made(_interpreter(target / MATERIALISED), str(program), version)

    def changes(self, plan: EnvPlan, settings: Settings) -> Changes:
        conda = plan.conda.dependencies if plan.conda else ()
        own = tuple(f"{file.name} of the pack" for file in _given(plan))
        return Changes(plan.key, own or (*conda, *plan.dependencies), notes=("pixi resolves these when it builds",))


def materialised(plan: EnvPlan) -> Path | None:
    """Return the interpreter of an environment that pixi made in the plan's own folder, None without one."""
    if plan.interpreter or plan.root is None or not (plan.root / manifest.FILE).is_file():
        return None
    interpreter = _interpreter(plan.root / MATERIALISED)
    return interpreter if os.access(interpreter, os.X_OK) else None


def find(plan: EnvPlan, settings: Settings) -> tuple[Path, str]:
    """Return a pixi that runs and its version; raises BuildFailed with how to get one."""
    place = settings.pixi or shutil.which("pixi")
    if not place:
        raise BuildFailed("pixi is not on this machine", env=plan.key, hint=HOW)
    answer = tools.ask([place, "--version"], 20)
    if answer.trouble or not answer.out.startswith("pixi "):
        raise BuildFailed(f"{place} is not pixi: {answer.trouble or answer.out.strip()[:80]!r}", env=plan.key, hint=HOW)
    return Path(place).absolute(), answer.out.strip()


def _given(plan: EnvPlan) -> list[Path]:
    """Return the pack's own manifest and lock, where it has a manifest."""
    if plan.root is None or not (plan.root / manifest.FILE).is_file():
        return []
    return [file for file in (plan.root / manifest.FILE, plan.root / "pixi.lock") if file.is_file()]


def _lay(plan: EnvPlan, settings: Settings, target: Path, came_from: sources.Sources, journal: Journal) -> None:
    given = _given(plan)
    for file in given:
        shutil.copyfile(file, target / file.name)
    if not given:
        wish = host_torch.wishes(plan, settings)[-1]
        for remark in wish.remarks:
            journal.say(remark)
        text = manifest.text(plan, wish.requirements, came_from)
        (target / manifest.FILE).write_text(text, encoding="utf-8")


def _variables(environ: dict[str, str], settings: Settings) -> dict[str, str]:
    office = paths.office(settings)
    own = {"PIXI_HOME": office / "pixi", "PIXI_CACHE_DIR": office / "cache" / "pixi", "RATTLER_CACHE_DIR": office / "cache" / "pixi"}
    return {**{name: os.fspath(path) for name, path in own.items()}, **environ, "PIXI_NO_PROGRESS": "true"}


def _interpreter(prefix: Path) -> Path:
    return prefix / "python.exe" if os.name == "nt" else prefix / "bin" / "python"


backend = PixiBackend()
