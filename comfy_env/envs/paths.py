"""Where everything of an environment lies. Every part of the package asks here, so a path is derived in one way only.

Below the folder of all environments, `NAME/` is one environment and `.comfy-env/` holds the locks and the installers'
caches: an environment on another drive has its cache on that drive, and nothing is written to the home folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import platformdirs

from comfy_env.packs.identity import slug
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

_APP = "comfy-env"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}(?<![.])")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def envs_root(settings: Settings) -> Path:
    """Return the folder of all environments, absolute."""
    root = settings.envs_folder or platformdirs.user_data_path(_APP, appauthor=False) / "envs"
    return Path(os.path.abspath(root))


def env_folder(plan: EnvPlan, settings: Settings) -> Path:
    """Return the folder of the plan's environment."""
    return envs_root(settings) / folder_name(plan.key)


def folder_name(key: str) -> str:
    """Return a key as a name that every file system takes; keys that differ, also in case alone, get different names."""
    if _PLAIN.fullmatch(key) and not _RESERVED.fullmatch(key):
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{slug(key)[:48].strip('-._') or 'env'}-{digest}"


def office(settings: Settings) -> Path:
    """Return the folder for what belongs to all environments."""
    return envs_root(settings) / ".comfy-env"


def lock_file(plan: EnvPlan, settings: Settings) -> Path:
    return office(settings) / f"{folder_name(plan.key)}.lock"


def record_file(plan: EnvPlan, settings: Settings) -> Path:
    """Return the file that says the environment was built once; it stays behind when the folder is moved away."""
    return office(settings) / f"{folder_name(plan.key)}.built"


def log_file(plan: EnvPlan, settings: Settings) -> Path:
    """Return the log of the environment's last build."""
    logs = settings.log_folder or platformdirs.user_log_path(_APP, appauthor=False)
    return Path(os.path.abspath(logs)) / "builds" / f"{folder_name(plan.key)}.log"


def interpreter_in(folder: Path) -> Path:
    """Return where a virtual environment keeps its interpreter."""
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def snapshot_file(plan: EnvPlan, settings: Settings) -> Path:
    """Return where a description of the pack's classes is kept; it outlives a rebuild of the environment."""
    return office(settings) / f"{folder_name(plan.key)}.snapshot.json"


def comfyui_file(settings: Settings) -> Path:
    """Return the file that says where the ComfyUI is that last ran an isolated pack."""
    return office(settings) / "comfyui.path"


def bytecode_folder(settings: Settings) -> Path:
    """Return where workers write bytecode: never beside a pack's own sources."""
    return office(settings) / "bytecode"
