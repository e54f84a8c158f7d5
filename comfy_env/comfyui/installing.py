"""`install`, for a pack's `install.py`: builds the pack's environments and says how it went in a last line of JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from comfy_env.comfyui import snapshot
from comfy_env.errors import ComfyEnvError
from comfy_env.packs.plan import EnvPlan, declares_envs
from comfy_env.pool import WorkerPool
from comfy_env.settings import Settings
from comfy_env.values import BuildStep, EnvStatus

NOT_READY = 4
"""The exit code of an install that left an environment unready; the command line's own."""


def install(*args: Any, **kwargs: Any) -> bool:
    """Build every environment of the calling pack that is not ready.

    Run as a program (`python install.py`), it ends with status 4 unless every environment is ready. At import it builds
    nothing: it names the command that does and returns whether nothing is left to do. Arguments of older releases are
    taken and mean nothing.
    """
    scope = sys._getframe(1).f_globals
    folder = Path(os.path.dirname(os.path.abspath(scope.get("__file__", "."))))
    if not declares_envs(folder):
        return True
    if scope.get("__name__") != "__main__":
        return _told(folder, sys.stdout)
    ready = build(folder, sys.stdout)
    if not ready:
        raise SystemExit(NOT_READY)
    return ready


def _told(folder: Path, out: TextIO) -> bool:
    """Name the command for what is not ready, looking at stamps only."""
    with WorkerPool() as pool:
        missing = [plan.key for plan in EnvPlan.from_pack(folder) if pool.inspect(plan, probe=False).status is not EnvStatus.READY]
    if missing:
        out.write(f"comfy-env: {', '.join(missing)} not built; run: comfy-env build {folder}\n")
    return not missing


def build(folder: Path, out: TextIO) -> bool:
    """Build a pack's environments, each alone, with a line per step; tell whether all are ready."""
    last = ""

    def progress(step: BuildStep) -> None:
        nonlocal last
        if step.text != last:
            last = step.text
            out.write(f"comfy-env: {step.key}: {step.text}\n")
            out.flush()

    report: dict[str, str] = {}
    with WorkerPool() as pool:
        for plan in EnvPlan.from_pack(folder):
            try:
                report[plan.key] = pool.build(plan, progress).status.value
                _describe(plan, out)
            except ComfyEnvError as error:
                report[plan.key] = "failed"
                out.write(f"comfy-env: {plan.key}: {error}\n")
    ready = all(state == EnvStatus.READY.value for state in report.values())
    out.write(json.dumps({"ready": ready, "envs": report}) + "\n")
    return ready


def _describe(plan: EnvPlan, out: TextIO) -> None:
    """Take the snapshot; a pack that cannot be imported yet is built all the same."""
    try:
        snapshot.take_outside(plan, Settings.read())
    except ComfyEnvError as error:
        out.write(f"comfy-env: {plan.key}: its nodes could not be described: {error.message.splitlines()[0]}\n")
        if error.hint:
            out.write(f"comfy-env: {plan.key}: next: {error.hint}\n")
