"""CUDA wheels: which file of the index fits an environment's Python, this platform and the host's torch.

Such wheels say in their local version what they were built for: `name-1.2+cu128torch28-cp312-cp312-linux_x86_64.whl`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from packaging import tags
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from comfy_env.envs import host_torch, wheel_pages
from comfy_env.errors import BuildFailed, Unsatisfiable
from comfy_env.packs.redact import clean
from comfy_env.packs.requirements import CUDA_WHEELS
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

log = logging.getLogger(__name__)

VARIABLE = "COMFY_ENV_CUDA_WHEELS_INDEX"
_INSTALL = "install {} into the host"
FAMILY = ("torch", "torchvision", "torchaudio")
_ASKED = re.compile(rf"@\s*{CUDA_WHEELS}:")
_NUMBER = r"((?:\d|\.(?=\d))+)"


def is_asked(line: str) -> bool:
    """Return whether a requirement means a CUDA wheel."""
    return _ASKED.search(line) is not None


def asked_torch(plan: EnvPlan) -> str:
    """Return the version of the host's torch if the plan depends on it, else ''."""
    return host_torch.host_version() if plan.torch == "host" or any(map(is_asked, plan.dependencies)) else ""


@dataclass(frozen=True)
class Settled:
    """Requirements that any installer understands, and the indexes to add for them."""

    lines: tuple[str, ...]
    indexes: tuple[str, ...] = ()


def settle(plan: EnvPlan, settings: Settings, python: str) -> Settled:
    """Return the plan's requirements with each CUDA wheel as the URL of the file that fits; raises BuildFailed.

    ``python`` is the version of the environment's interpreter.
    """
    asked = {line: Requirement(line) for line in plan.dependencies if is_asked(line)}
    if not asked:
        return Settled(plan.dependencies)
    family = {line: f"{wanted.name}=={_host_version(wanted.name, plan)}" for line, wanted in asked.items() if _is_family(wanted)}
    found = _looked_up({line: wanted for line, wanted in asked.items() if line not in family}, plan, settings, python)
    lines = tuple(family.get(line) or found.get(line) or line for line in plan.dependencies)
    build = host_torch.host_version().partition("+")[2]
    return Settled(lines, host_torch.indexes(build, settings) if family and build and not plan.indexes else ())


def _looked_up(asked: dict[str, Requirement], plan: EnvPlan, settings: Settings, python: str) -> dict[str, str]:
    """Return what the index has for each of the requirements; raises BuildFailed."""
    if not asked:
        return {}
    if not settings.cuda_wheels_index:
        raise BuildFailed(
            f"{next(iter(asked.values())).name} is looked up in an index of CUDA wheels, and {VARIABLE} is not set", env=plan.key,
            hint=f"set {VARIABLE} to the URL of the index the pack's author names",
        )
    target = _target(plan, python)
    return {line: _settled(wanted, plan, settings, target) for line, wanted in asked.items()}


def _is_family(wanted: Requirement) -> bool:
    return canonicalize_name(wanted.name) in FAMILY


@dataclass(frozen=True)
class Target:
    """What a wheel must fit: the host's torch, CUDA and this Python's tags."""

    torch: Version
    cuda: str
    tags: frozenset[Tag]
    python: str

    def fits(self, local: str | None) -> bool:
        """Return whether a wheel's local version says it was built for the host's torch and CUDA."""
        cuda = re.search(rf"cu{_NUMBER}", local or "")
        torch = re.search(rf"(?:torch|pt){_NUMBER}", local or "")
        if cuda is None or torch is None:
            return False
        release = ["".join(map(str, self.torch.release[:length])) for length in (2, 3)]
        return cuda[1].replace(".", "") == self.cuda and torch[1].replace(".", "") in release

    def __str__(self) -> str:
        return f"torch {self.torch.public}, CUDA {self.cuda[:-1]}.{self.cuda[-1]}, Python {self.python} on this platform"


def _target(plan: EnvPlan, python: str) -> Target:
    version = host_torch.host_version()
    if not version:
        raise BuildFailed("its CUDA wheels must fit the host's torch, and the host has none", env=plan.key, hint=_INSTALL.format("torch"))
    torch = Version(version)
    cuda = re.fullmatch(r"cu(\d+)", torch.local or "")
    if cuda is None:
        raise BuildFailed(
            f"its CUDA wheels must fit the host's torch, and torch {version} is no build for CUDA", env=plan.key,
            hint="install a torch for CUDA into the host, or use the pack on a machine that has one",
        )
    release = [int(part) for part in python.split(".")[:2]]
    platforms = list(tags.platform_tags())
    cpython = f"cp{''.join(map(str, release))}"
    known = [*tags.cpython_tags(release, platforms=platforms), *tags.compatible_tags(release, cpython, platforms)]
    return Target(torch, cuda[1], frozenset(known), ".".join(map(str, release)))


def _settled(wanted: Requirement, plan: EnvPlan, settings: Settings, target: Target) -> str:
    specifier = SpecifierSet(str(wanted.url).partition(":")[2])
    pages = wheel_pages.links(settings.cuda_wheels_index, wanted.name, plan.key)
    found = [(version, url) for version, url in _wheels(wanted.name, pages, target) if specifier.contains(version.public, prereleases=True)]
    if not found:
        raise _nothing(wanted, plan, settings, target, pages)
    return f"{wanted.name} @ {max(found, key=lambda one: one[0])[1]}"


def _host_version(name: str, plan: EnvPlan) -> str:
    try:
        version = metadata.version(name) if canonicalize_name(name) != "torch" else host_torch.host_version()
    except metadata.PackageNotFoundError:
        version = ""
    if not version:
        raise BuildFailed(f"{name} means the host's version, and the host has none", env=plan.key, hint=_INSTALL.format(name))
    return version


def _wheels(name: str, pages: Iterable[wheel_pages.Link], target: Target) -> Iterable[tuple[Version, str]]:
    for link in pages:
        try:
            package, version, _, built_for = parse_wheel_filename(link.name)
        except InvalidWheelFilename:
            log.debug("%s is not the name of a wheel", link.name)
            continue
        if package == canonicalize_name(name) and target.fits(version.local) and built_for & target.tags:
            yield version, link.url


def _nothing(
    wanted: Requirement, plan: EnvPlan, settings: Settings, target: Target, pages: tuple[wheel_pages.Link, ...]
) -> Unsatisfiable:
    named = canonicalize_name(wanted.name).replace("-", "_")
    there = tuple(link.name for link in pages if link.name.lower().startswith(f"{named}-"))
    version = str(wanted.url).partition(":")[2]
    return Unsatisfiable(
        f"{clean(settings.cuda_wheels_index)} has no wheel of {wanted.name}{version} for {target}", env=plan.key, output=there[-40:],
        hint="ask the pack's author for such a wheel, or use a torch one of these fits" if there else f"is {VARIABLE} the right index?",
    )
