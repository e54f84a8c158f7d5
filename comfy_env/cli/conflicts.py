"""On what two environments cannot agree, from their declared requirements alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from comfy_env.packs import pythons
from comfy_env.values import EnvPlan


class Conflict(NamedTuple):
    """Two environments and what they want of one thing, a package or python."""

    one: str
    other: str
    what: str
    one_wants: str
    other_wants: str


def conflicts(plans: Sequence[EnvPlan]) -> list[Conflict]:
    """Return every pair of environments that no single environment can serve."""
    wanted = [(plan.key, _wants(plan)) for plan in plans]
    return [Conflict(one, other, name, str(ours[name]), str(theirs[name]))
            for (one, ours), (other, theirs) in combinations(wanted, 2)
            for name in sorted(ours.keys() & theirs.keys()) if not can_agree(ours[name], theirs[name])]


def _wants(plan: EnvPlan) -> dict[str, SpecifierSet]:
    found: dict[str, SpecifierSet] = {}
    if plan.python:
        found["python"] = pythons.specifier(plan.python)
    for line in plan.dependencies:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found


def can_agree(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Tell whether some version satisfies both.

    Specifiers are unions of ranges that begin and end at the versions they name: if their intersection holds anything,
    it holds a named version or one right beside it.
    """
    both = one & other
    names = [version for version in map(_named, both) if version is not None]
    return not names or any(both.contains(version, prereleases=True) for name in names for version in _beside(name))


def _named(specifier: object) -> Version | None:
    text = str(getattr(specifier, "version", "")).removesuffix(".*")
    try:
        return Version(text)
    except InvalidVersion:
        return None  # an arbitrary-equality clause (===) may name no version


def _beside(version: Version) -> Iterator[Version]:
    epoch = f"{version.epoch}!" if version.epoch else ""
    release = ".".join(map(str, version.release))
    yield version
    yield Version(f"{epoch}{release}.0.1")
    below = list(version.release)
    while below and below[-1] == 0:
        below.pop()
    if below:
        below[-1] -= 1
        yield Version(f"{epoch}{'.'.join(map(str, below))}.99999")
