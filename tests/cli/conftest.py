"""Runs the command in this process, on a screen that keeps what was said."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from comfy_env.cli.app import main
from comfy_env.cli.screen import Screen


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli() -> Callable[..., Answer]:
    """`cli("status", folder, "--json")` runs the command and returns code, out and err."""

    def run(*words: object) -> Answer:
        argv = [str(word) for word in words]
        out, err = io.StringIO(), io.StringIO()
        return Answer(main(argv, Screen("--json" in argv, out, err)), out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., Path]:
    """`pack("name", "python = '3.11'")` writes a pack with a [tool.comfy-env] table and returns its folder."""

    def write(name: str, table: str = "", header: str = "[tool.comfy-env]") -> Path:
        folder = tmp_path / "packs" / name
        folder.mkdir(parents=True)
        text = f'[project]\nname = "{name}"\nversion = "1.0"\n\n{header}\n{table}\n'
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        return folder

    return write
