"""What a failed tool's words mean: four causes have errors of their own, everything else stays a failed build."""

from __future__ import annotations

import re
from collections.abc import Iterable

from comfy_env.errors import BuildFailed, PackageDamaged, PlatformMissing, Unsatisfiable

KINDS: dict[str, type[BuildFailed]] = {"damaged": PackageDamaged, "platform": PlatformMissing, "unsatisfiable": Unsatisfiable}
_FRAME = re.compile(r"[×╰├─▶│·╭╮╯\s]+")
_SAID = (
    ("damaged", re.compile(r"hash mismatch|checksum mismatch|header missing|decompress|failed to (?:extract|unpack)|invalid zip|corrupt")),
    ("platform", re.compile(r"does not support '|not supported by the|unsupported platform|virtual package")),
    ("unsatisfiable", re.compile(r"cannot solve the request|failed to solve|no candidates were found|no solution found")),
)


def kind_of(lines: Iterable[str]) -> str:
    """Return which cause the words tell of, '' for another one; they may be framed and wrapped for a terminal."""
    text = _FRAME.sub(" ", " ".join(lines)).lower()
    return next((kind for kind, said in _SAID if said.search(text)), "")


def gist(lines: Iterable[str]) -> str:
    """Return the words that say the cause, in one line."""
    told = [_FRAME.sub(" ", line).strip() for line in lines]
    start = next((number for number, line in enumerate(told) if kind_of([line])), len(told) - 1)
    return " ".join(filter(None, told[start: start + 3]))[:300] if told else ""


def named(error: BuildFailed, kind: str = "", what: str = "") -> BuildFailed:
    """Return the error under the name of its cause."""
    kind = kind or kind_of([what] if what else error.output)
    what = what or gist(error.output)
    message = f"{error.message}: {what}" if what and what not in error.message else error.message
    return KINDS.get(kind, BuildFailed)(message, env=error.env, output=error.output, hint=error.hint)
