"""Checkers of the table's single values: each returns the value in the plan's form or raises Wrong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from comfy_env.packs import pythons, requirements
from comfy_env.packs.wrong import Wrong, did_you_mean
from comfy_env.settings import SWITCHES, Settings
from comfy_env.values import Conda

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(r"COMFY_ENV_|PYTHONPATH$|PYTHONHOME$")


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"must be a text, not {value!r}")
    return value.strip()


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, not {value!r}")
    return value


def each(check: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a checker of a list whose elements the given one checks."""

    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Wrong(f"must be a list, not {value!r}", "write [\"…\", \"…\"]")
        return tuple(_part(check, part, index) for index, part in enumerate(value))

    return checked


def _part(check: Callable[[Any], Any], value: Any, *at: str | int) -> Any:
    try:
        return check(value)
    except Wrong as wrong:
        raise wrong.inside(*at) from None


def choice(*options: str) -> Callable[[Any], str]:
    """Return a checker of one word out of some."""

    def checked(value: Any) -> str:
        if value not in options:
            raise Wrong(f"must be one of {', '.join(options)}, not {value!r}", did_you_mean(str(value), options))
        return value

    return checked


def python(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Wrong(f"must be a text: without quotes TOML reads a number ({value})", 'write python = "3.10"')
    pythons.specifier(text(value))
    return text(value)


def requirement(value: Any) -> str:
    return requirements.check(text(value))


def requirement_or_source(value: Any) -> str:
    return requirements.check(text(value), source_builds=True)


def index(value: Any) -> str:
    return requirements.check_index(text(value))


def indexes(value: Any) -> Indexes:
    """Return a list of indexes, or a table of `extra` ones and the packages (`cuda`) whose CUDA wheels are looked up."""
    if not isinstance(value, dict):
        return Indexes(each(index)(value))
    parts = table(value, {"extra": each(index), "cuda": each(requirements.cuda_wheel)})
    return Indexes(parts.get("extra", ()), parts.get("cuda", ()))


@dataclasses.dataclass(frozen=True)
class Indexes:
    """Where packages come from. ``cuda`` are requirements that mean CUDA wheels."""

    extra: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()


def conda(value: Any) -> Conda:
    parts = {"channels": each(_channel), "dependencies": each(_conda_word)}
    return Conda(**table(value, parts))


def _channel(value: Any) -> str:
    """Check a channel: a name, an https URL or a folder of this machine as a `file:` URL."""
    parts = urlsplit(text(value))
    if parts.scheme != "file":
        return _conda_word(value)
    here = parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return _plain_word(value) if here else _remote(_plain_word(value))


def _conda_word(value: Any) -> str:
    word = _plain_word(value)
    if "://" in word:
        return _remote(word)
    if re.match(r"(\.|~|/|\\|[A-Za-z]:[\\/])", word):
        raise Wrong(f"{word!r} is a path", "name a package or channel; a channel on this disk is written file:///folder")
    return word


def _plain_word(value: Any) -> str:
    word = text(value)
    if word.startswith("-") or re.search(r"[\x00-\x1f]", word):
        raise Wrong(f"{word!r} is not a conda name")
    return word


def _remote(word: str) -> str:
    """Check a URL by the rules of an index, told in a channel's words."""
    try:
        return requirements.check_index(word)
    except Wrong as wrong:
        hint = wrong.hint if "credentials" in wrong.what else "a channel is a name, an https URL or file:///folder"
        raise Wrong(wrong.what.replace("the index ", "the channel ", 1), hint) from None


def table(value: Any, checks: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Check a table whose keys are known."""
    if not isinstance(value, dict):
        raise Wrong(f"must be a table, not {value!r}")
    for key in value:
        if key not in checks:
            raise Wrong(f"unknown key {key!r}", did_you_mean(key, checks), (key,))
    return {key: _part(checks[key], part, key) for key, part in value.items()}


def variables(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise Wrong(f"must be a table of variables, not {value!r}")
    return tuple((_part(variable, name, name), _part(_plain, part, name)) for name, part in value.items())


def _plain(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise Wrong(f"must be a text, not {value!r}", "put the value in quotes")
    return value


def variable(value: Any) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise Wrong(f"{value!r} is not the name of an environment variable")
    if _OURS.match(value):
        raise Wrong(f"{value} is set by comfy_env alone")
    return value


LIMITS = {f.name: f.metadata for f in dataclasses.fields(Settings) if f.type in ("float", "int")}


def limits(value: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict):
        raise Wrong(f"must be a table of limits, not {value!r}")
    return tuple(_part(partial(_limit, key), number, key) for key, number in value.items())


def _limit(key: str, value: Any) -> tuple[str, float]:
    name = key.replace("-", "_")
    if name not in LIMITS:
        raise Wrong(f"unknown limit {key!r}", did_you_mean(name, LIMITS))
    low, high = LIMITS[name]["low"], LIMITS[name]["high"]
    if isinstance(value, bool) and LIMITS[name]["unit"] in SWITCHES:
        return name, int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise Wrong(f"must be a number from {low:g} to {high:g}, not {value!r}")
    return name, value


def api(value: Any) -> str:
    written = f">={value}" if isinstance(value, int) and not isinstance(value, bool) else text(value)
    if written.isdigit():
        written = f">={written}"
    try:
        return str(SpecifierSet(written))
    except InvalidSpecifier:
        raise Wrong(f"{value!r} is not an API level", 'write api = ">=1"') from None
