"""What the program that runs py-rattler is asked, and where its answer is found."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comfy_env.backends.pixi.making import Making
from comfy_env.envs import paths
from comfy_env.packs.pixi_env import PixiEnv
from comfy_env.packs.pixi_manifest import LOCK

PROGRAM = "comfy_env.backends.pixi.conda_program"
_BOOT = """import json, runpy, sys
with open(sys.argv[2], encoding="utf-8") as file:
    sys.path[:] = json.load(file)["path"]
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)"""
_TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Request:
    """A request that was written. ``lock`` is what it installs from, None where it solves."""

    argv: tuple[object, ...]
    answer: Path
    lock: Path | None


def request(making: Making, env: PixiEnv, prefix: Path | None, lock: Path | None) -> Request:
    """Write a request for an environment into the build's folder; without a prefix it is only solved."""
    file, answer = making.target / "request.json", making.target / "answer.json"
    said = asdict(env)
    asked = {
        **{name: said[name] for name in ("channels", "platform", "priority", "strategy", "needs", "constraints")},
        "specs": env.conda, "environment": making.environment, "prefix": str(prefix or ""), "lock": str(lock or ""),
        "lock_told": making.lock_told,
        "lock_out": str(making.target / LOCK), "answer": str(answer), "root": str(making.plan.root or making.target),
        "cache": os.fspath(paths.office(making.settings) / "cache" / "conda"),
        "path": _path(making), "config": _config(making.variables), "offline": is_offline(making.variables),
    }
    file.write_text(json.dumps(asked, indent=1), encoding="utf-8")
    return Request((sys.executable, "-I", "-u", "-c", _BOOT, PROGRAM, file), answer, lock)


def answered(asked: Request) -> dict[str, Any]:
    """Return the answer, {} where the program was ended before it gave one."""
    if not asked.answer.is_file():
        return {}
    said: dict[str, Any] = json.loads(asked.answer.read_bytes())
    return said


def is_offline(variables: Mapping[str, str]) -> bool:
    """Return whether one of the tools' own variables says there is no network."""
    return any(variables.get(name, "").lower() in _TRUE for name in ("PIXI_OFFLINE", "UV_OFFLINE"))


def _config(variables: Mapping[str, str]) -> str:
    if variables.get("PIXI_NO_CONFIG", "").lower() in _TRUE:
        return "-"
    return variables.get("PIXI_CONFIG_FILE", "")


def _path(making: Making) -> list[str]:
    """Return where the program imports from: what this process does, py-rattler's folder last."""
    own = [folder for folder in sys.path if folder and os.path.isabs(folder)]
    return [*own, str(making.provider.path)]
