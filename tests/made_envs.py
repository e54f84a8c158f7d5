"""Environments laid out as a build leaves them, without a build: a venv made once, and a stamp for each plan that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from comfy_env.envs import paths, preloads, stamps
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

BUILD = "made-once"


def make_venv(place: Path, *site_folders: Path) -> Path:
    """Make a virtual environment of this Python that also sees what this one has installed, and these folders before that."""
    made = place / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True, timeout=60)
    site = next(made.glob("lib/python*/site-packages"))
    own = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    (site / "seen.pth").write_text("".join(f"{folder}\n" for folder in (*site_folders, *own)))
    return made


def lay_out(backend: Any, plan: EnvPlan, settings: Settings, venv: Path, imports: Iterable[str] = ()) -> Path:
    """Make the venv the environment that is built for a plan; ``imports`` are what its workers were seen to import."""
    folder = paths.env_folder(plan, settings)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BUILD).symlink_to(venv)
    version = ".".join(map(str, sys.version_info[:3]))
    stamps.write(folder, stamps.Stamp(
        key=plan.key, plan=backend.wanted(plan), folder=os.path.realpath(folder), build=BUILD, interpreter="bin/python",
        python=version, base=sys.executable, tool="by hand", built="now",
    ))
    preloads.add(folder, imports)
    return folder
