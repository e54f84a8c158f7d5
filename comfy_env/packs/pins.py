"""Packs whose requirements pin some version of this package: installing one replaces the one everybody uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_PIN = re.compile(r"^\s*[\"']?comfy[-_.]env(\[[^\]]*\])?\s*(===?|~=|<=?|!=)[^\"'#;]*", re.IGNORECASE | re.MULTILINE)
FILES = ("requirements.txt", "pyproject.toml", "setup.cfg")


def pins(folders: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each requirement that would replace us: where it stands, and what the manager can be told instead."""
    for folder in folders:
        for file in (folder / name for name in FILES):
            found = _PIN.search(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
            if found:
                line = found.group().strip(" \"'\n")
                yield f"{file}: {line!r} would replace this comfy-env; an override for the manager: comfy-env>=1!0"
