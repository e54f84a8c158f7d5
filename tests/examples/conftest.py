"""The examples are not part of the package: their folder is put on the path for these tests alone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def part():
    """`part("photo")` returns a module of the demo."""
    return lambda name: importlib.import_module(f"demo_parts.{name}")


@pytest.fixture(scope="module")
def classes():
    """The node classes of both packs, imported the way ComfyUI does."""
    pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    from comfy_env.worker.node_packs import Packs

    before, packs = set(sys.modules), Packs()
    found = {name: kind for pack in ("pack_classic", "pack_modern") for name, kind in packs.load(str(EXAMPLES / pack)).classes.items()}
    yield found
    for name in set(sys.modules) - before:
        if name.startswith(str(EXAMPLES)) or name.split(".")[0] == "comfy":
            del sys.modules[name]
