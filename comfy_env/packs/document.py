"""A pack's `pyproject.toml` with the line of everything in it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfy_env.errors import PlanError
from comfy_env.packs import positions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "pyproject.toml"


@dataclass(frozen=True)
class Document:
    """The parsed text and where each part of it stands."""

    file: Path
    data: dict[str, Any]
    lines: dict[positions.Path, int]

    def table(self, *keys: str) -> dict[str, Any]:
        """Return the table under the keys, {} where there is none; raises PlanError where something else stands there."""
        value: Any = self.data
        for depth, key in enumerate(keys):
            value = value.get(key, {})
            if not isinstance(value, dict):
                raise self.problem(keys[: depth + 1], f"{'.'.join(keys[: depth + 1])} must be a table")
        return value

    def place(self, path: positions.Path) -> str:
        """Return `file:line` of the path, or of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.file}:{self.lines[path[:length]]}"
        return f"{self.file}"

    def problem(self, path: positions.Path, what: str, hint: str = "") -> PlanError:
        """Return the error that says what is wrong at the path."""
        return PlanError(f"{self.place(path)}: {what}", hint=hint)


def read(folder: Path) -> Document:
    """Read the folder's `pyproject.toml`; raises PlanError with the line of what cannot be read."""
    file = folder / FILE
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise PlanError(f"{folder} has no {FILE}", hint=f"declare the environment in a [tool.comfy-env] table of {file}") from None
    except OSError as error:
        raise PlanError(f"{file} cannot be read: {error.strerror or error}") from error
    return parse(file, raw)


def parse(file: Path, raw: bytes) -> Document:
    """Parse the bytes of a TOML file; a byte-order mark is accepted."""
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        return Document(file, tomllib.loads(text), positions.scan(text))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise PlanError(f"{file}:{line}: not UTF-8 text", hint="save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{file}: not valid TOML: {error}") from None
