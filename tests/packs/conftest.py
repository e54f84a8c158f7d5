"""Packs written to disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def pack(tmp_path):
    """`pack(text, folder="pack")` writes a pack's `pyproject.toml` and returns its folder."""

    def make(text: str, folder: str | Path = "pack") -> Path:
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "pyproject.toml").write_text(text, encoding="utf-8")
        return place

    return make
