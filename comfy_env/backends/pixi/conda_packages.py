"""Conda packages as the host is told of them, and the checks py-rattler leaves to its caller."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import rattler

from comfy_env.backends.pixi.conda_telling import Refused, say


def facts(record: Any) -> dict[str, Any]:
    """Return what is told of a package."""
    return {"name": record.name.normalized, "version": str(record.version), "build": str(record.build), "url": str(record.url),
            "sha256": _hex(record.sha256), "size": record.size}


def virtual_packages(needs: list[list[str]]) -> list[Any]:
    """Return what this machine offers (CUDA, glibc, …); raises Refused where it lacks something that is needed."""
    found = rattler.VirtualPackage.detect(rattler.VirtualPackageOverrides.from_env())
    offered = {package.into_generic().name.normalized: package.into_generic().version for package in found}
    for name, least in needs:
        if name not in offered:
            raise Refused("platform", f"the environment needs {name} {least}, which this machine does not offer")
        if least and name != "__archspec" and offered[name] < rattler.Version(least):
            raise Refused("platform", f"the environment needs {name} {least}, and this machine offers {offered[name]}")
    return list(found)


def check_files(records: list[Any]) -> None:
    """Hold the files of channels on disk against their digests: py-rattler does so for downloads only."""
    local = [record for record in records if str(record.url).startswith("file:")]
    if local:
        say(f"checking {len(local)} packages on disk")
    for record in local:
        _check(Path(unquote(urlsplit(str(record.url)).path)), record)


def _check(file: Path, record: Any) -> None:
    try:
        with open(file, "rb") as source:
            found = hashlib.file_digest(source, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(source)
    except OSError as error:
        raise Refused("", f"{file} cannot be read: {error.strerror or error}") from None
    wanted = _hex(record.sha256)
    if wanted and found != wanted:
        raise Refused("damaged", f"{file} is not what its channel says: its sha256 is {found}, it should be {wanted}")


def _digest(source: Any) -> str:
    digest = hashlib.sha256()
    while data := source.read(1 << 20):
        digest.update(data)
    return digest.hexdigest()


def _hex(digest: bytes | None) -> str:
    return digest.hex() if digest else ""
