"""Which Pythons a plan's `python` allows."""

from __future__ import annotations

import functools
import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from comfy_env.packs.wrong import Wrong

FLOOR = 9
"""The oldest minor version of Python 3 a worker runs on."""
NEWEST = 20


@functools.lru_cache(maxsize=64)
def specifier(python: str | None) -> SpecifierSet:
    """Return what versions are allowed; a bare version such as "3.10" means its whole series. Raises Wrong."""
    text = (python or "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        text = f"=={text}.*"
    elif re.fullmatch(r"\d+\.\d+\.\d+\w*", text):
        text = f"=={text}"
    try:
        wanted = SpecifierSet(text, prereleases=True)
    except InvalidSpecifier:
        raise Wrong(f"{python!r} is not a Python version", 'write "3.10" or ">=3.10,<3.13"') from None
    if not minors(wanted):
        raise Wrong(f"{python!r} allows no Python that a worker runs on", f"workers run on Python 3.{FLOOR} or newer")
    return wanted


@functools.lru_cache(maxsize=64)
def minors(wanted: SpecifierSet) -> tuple[int, ...]:
    """Return the minor versions of Python 3, newest first, of which some release is allowed."""
    return tuple(m for m in range(NEWEST, FLOOR - 1, -1) if any(wanted.contains(f"3.{m}.{patch}") for patch in range(40)))
