"""What a failed tool's words mean: four causes have errors of their own, everything else stays a failed build."""

from __future__ import annotations

import re
from collections.abc import Iterable

from comfy_env.errors import BuildFailed, PackageDamaged, PlatformMissing, Unsatisfiable

KINDS: dict[str, type[BuildFailed]] = {"damaged": PackageDamaged, "platform": PlatformMissing, "unsatisfiable": Unsatisfiable}
HINTS = {
    "full": "make room on the disk, or name a folder on another one in COMFY_ENV_ENVS",
    "damaged": "have the package fetched or the channel indexed anew",
    "platform": "the pack as it is declared does not fit this machine: ask its author",
    "unsatisfiable": "ask for other versions, or name a channel that has them",
    "certificate": "name the file with your proxy's or mirror's certificates in SSL_CERT_FILE",
    "network": "check the network, the proxy and the channel's address",
    "channel": "check the channel's address; PIXI_OFFLINE and UV_OFFLINE keep every tool off the network",
}
_FRAME = re.compile(r"[×╰├└─▶│·╭╮╯\s]+")
_CAUSE = re.compile(r"\s*\n\s*Caused by: ")
_REACHED = (
    ("certificate", re.compile(r"invalid peer certificate|certificate verify failed|self.signed certificate")),
    ("network", re.compile(r"error sending request|dns error|connection (?:refused|reset)|operation timed out|failed to connect")),
    ("channel", re.compile(r"could not find subdir|no usable repodata")),
)
_SAID = (
    ("full", re.compile(r"no space left on device|disk quota exceeded|not enough space")),
    ("damaged", re.compile(r"hash mismatch|checksum mismatch|header missing|decompress|failed to (?:extract|unpack)|invalid zip|corrupt")),
    ("platform", re.compile(r"does not support '|not supported by the|unsupported platform|virtual package")),
    ("unsatisfiable", re.compile(r"cannot solve the request|failed to solve|no candidates were found|no solution found"
                                 r"|no matching distribution found|resolutionimpossible")),
)


def kind_of(lines: Iterable[str]) -> str:
    """Return which cause the words tell of, '' for another one; they may be framed and wrapped for a terminal."""
    return _found(_SAID, lines)


def plain(lines: Iterable[str]) -> str:
    """Return lines that may be framed and wrapped for a terminal as plain text, in small letters."""
    return _FRAME.sub(" ", " ".join(lines)).lower()


def _found(known: tuple[tuple[str, re.Pattern[str]], ...], lines: Iterable[str]) -> str:
    text = plain(lines)
    return next((kind for kind, said in known if said.search(text)), "")


def gist(lines: Iterable[str]) -> str:
    """Return the words that say the cause, in one line."""
    told = [_FRAME.sub(" ", line).strip() for line in lines]
    start = next((number for number, line in enumerate(told) if kind_of([line])), len(told) - 1)
    return " ".join(filter(None, told[start: start + 3]))[:300] if told else ""


def in_one_line(text: str) -> str:
    """Return words that were set on several lines, each cause behind what it caused, as one line."""
    return " ".join(_FRAME.sub(" ", _CAUSE.sub(": ", text)).split())[:500]


def named(error: BuildFailed, kind: str = "", what: str = "") -> BuildFailed:
    """Return the error under the name of its cause, with the next step where the cause tells it."""
    said = [what] if what else error.output
    kind = kind or kind_of(said)
    what = in_one_line(what) or gist(error.output)
    message = f"{error.message}: {what}" if what and what not in error.message else error.message
    hint = HINTS.get(kind or _found(_REACHED, said), "")
    return KINDS.get(kind, BuildFailed)(message, env=error.env, output=error.output, hint="; ".join(filter(None, (error.hint, hint))))
