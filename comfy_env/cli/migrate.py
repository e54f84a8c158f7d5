"""`comfy-env migrate`: say in a `[tool.comfy-env]` table what a pack's older files say."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comfy_env.cli.exits import Exit, NotThere
from comfy_env.cli.screen import Screen
from comfy_env.packs import legacy
from comfy_env.values import Conda

KEYS = {"variables": "env"}
SUCCESSORS = {
    "wrap_nodes": "register_nodes()", "isolated": "a [tool.comfy-env] table and register_nodes()",
    "VenvWorker": "WorkerPool", "IsolatedEnvManager": "WorkerPool",
}


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Show the table each pack would have, or write it into the pack's pyproject.toml."""
    told = []
    for folder in map(Path, options.packs):
        if not legacy.declares(folder):
            raise NotThere(f"{folder} has no {legacy.FILE}", hint="there is nothing to migrate: write a [tool.comfy-env] table")
        text = table(folder)
        uses = sorted(set(_uses(folder)))
        if options.write:
            _write(folder / "pyproject.toml", folder.name, text)
        told.append({"pack": str(folder), "table": text, "notes": list(legacy.notes(folder)), "uses": uses, "written": options.write})
        screen.say(f"# {folder / 'pyproject.toml'}{'' if options.write else ' would get'}", text, *legacy.notes(folder), *uses)
    screen.document({"packs": told})
    return Exit.DONE


def table(folder: Path) -> str:
    """Return the table that says what the pack's older files say."""
    envs = legacy.envs(folder)
    blocks = [_block(env.name, env.values) for env in envs]
    return "\n".join(blocks)


def _block(name: str, values: dict[str, Any]) -> str:
    head = f"[tool.comfy-env.envs.{name}]" if name else "[tool.comfy-env]"
    lines = [f"{KEYS.get(key, key)} = {_toml(value)}" for key, value in values.items() if value not in ((), None, "")]
    return "\n".join([head, *lines, ""])


def _toml(value: Any) -> str:
    """Return a plan's value in TOML."""
    if isinstance(value, Conda):
        return f"{{ channels = {_toml(value.channels)}, dependencies = {_toml(value.dependencies)} }}"
    if isinstance(value, tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(value) if isinstance(value, (str, bool, int, float)) else json.dumps(str(value))


def _write(file: Path, name: str, text: str) -> None:
    before = file.read_text(encoding="utf-8") if file.exists() else f'[project]\nname = "{name}"\n'
    file.write_text(f"{before.rstrip()}\n\n{text}", encoding="utf-8")


def _uses(folder: Path) -> Iterator[str]:
    """Yield where the pack's code uses a name that is no more, with what replaces it."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "comfy_env" in text:
            yield from (f"{path.relative_to(folder)} uses {name}: use {new}" for name, new in SUCCESSORS.items() if name in text)
