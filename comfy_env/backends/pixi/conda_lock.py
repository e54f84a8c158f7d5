"""Reading `pixi.lock` (every version py-rattler knows: 1 to 7) and writing one of our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rattler
from rattler.exceptions import ParseCondaLockError

from comfy_env.backends.pixi import conda_packages
from comfy_env.backends.pixi.conda_telling import Refused, say


@dataclass(frozen=True)
class Locked:
    """What a lock holds for one environment on one platform. ``pypi`` are facts of its Python packages."""

    records: list[Any]
    pypi: list[dict[str, str]]


def read(request: dict[str, Any]) -> Locked:
    """Return what the request's lock holds; raises Refused."""
    file, name = request["lock_told"], request["environment"]
    try:
        lock = rattler.LockFile.from_path(Path(request["lock"]))
    except ParseCondaLockError as error:
        raise Refused("plan", f"{file} cannot be read: {error}") from None
    environment = lock.environment(name)
    if environment is None:
        known = ", ".join(sorted(found for found, _ in lock.environments())) or "none"
        raise Refused("platform", f"{file} locks no environment {name!r}; it locks {known}")
    platform = _platform(environment, request)
    packages = environment.packages(platform) or []
    source = next((package for package in packages if isinstance(package, rattler.CondaLockedSourcePackage)), None)
    if source is not None:
        raise Refused("plan", f"{file}: {source.name} is built from sources ({source.location}), which needs pixi itself")
    say(f"{len(packages)} packages are locked in {file}")
    records = [package.repo_data_record() for package in packages if isinstance(package, rattler.CondaLockedBinaryPackage)]
    for spec in request["specs"]:
        if not any(_is_asked(spec, record) for record in records):
            say(f"{file} does not fit its manifest, which asks for {spec}; what it locks is installed")
    return Locked(records, [_pypi(package) for package in packages if isinstance(package, rattler.PypiLockedPackage)])


def _is_asked(spec: str, record: Any) -> bool:
    """Return whether a locked package is what is asked for; where it came from is the lock's to say."""
    asked = rattler.MatchSpec(spec)
    nameless = rattler.NamelessMatchSpec(f"{asked.version or '*'} {asked.build or ''}".strip())
    return record.name.normalized == str(asked.name and asked.name.normalized).lower() and bool(nameless.matches(record))


def _platform(environment: Any, request: dict[str, Any]) -> Any:
    """Return the environment's platform that is this machine's, the first whose virtual packages it offers."""
    here = [platform for platform in environment.platforms() if str(platform.subdir) == request["platform"]]
    if not here:
        known = ", ".join(sorted(platform.name for platform in environment.platforms())) or "none"
        raise Refused("platform", f"{request['lock_told']} locks {request['environment']!r} for {known}, not for {request['platform']}")
    refusals = []
    for platform in here:
        try:
            conda_packages.virtual_packages([_need(text) for text in platform.virtual_packages])
        except Refused as refused:
            refusals.append(refused)
            say(f"{platform.name}: {refused.what}")
        else:
            return platform
    raise refusals[0]


def _need(text: str) -> list[str]:
    """Return `__glibc >= 2.17` or `__glibc=2.17` as a name and its least version."""
    name, _, version = text.replace(">=", "=").replace(" ", "").partition("=")
    return [name, version.strip("=").split("=")[0]]


def _pypi(package: Any) -> dict[str, str]:
    hashes = package.hashes
    known = getattr(hashes, "_hashes", None) is not None   # py-rattler wraps hashes that are not there, too
    digest = hashes.sha256.hex() if known and hashes.sha256 else ""
    return {"name": package.name, "version": str(package.version or ""), "location": str(package.location), "sha256": digest}


def write(request: dict[str, Any], records: list[Any]) -> None:
    """Write what was solved as a lock into the file the request names."""
    platform = rattler.LockPlatform(request["platform"], rattler.Subdir(request["platform"]))
    lock = rattler.LockFile([platform])
    lock.set_channels(request["environment"], [rattler.Channel(name).to_lock_channel() for name in request["channels"]])
    for record in records:
        lock.add_conda_package(request["environment"], platform, record)
    lock.to_path(Path(request["lock_out"]))
