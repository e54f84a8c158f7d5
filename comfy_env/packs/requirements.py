"""The rules a requirement line must keep before any tool sees it.

A pack's table is untrusted text that ends on an installer's command line. Only PEP 508 requirements pass: no options, no
paths, no local files, no credentials. A refusal never repeats a secret.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from comfy_env.packs.redact import clean_hard, has_secret
from comfy_env.packs.wrong import Wrong

CUDA_WHEELS = "cuda-wheels"
"""The scheme of a requirement such as `name @ cuda-wheels:>=1.2`: the wheel that fits the host's torch, from the index of CUDA wheels."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATH = re.compile(r"^(\.|~|/|\\|[A-Za-z]:[\\/])")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_KEEP = "keep credentials in a keyring, ~/.netrc or the installer's own settings"
_INSTEAD = {
    "-r": "write the lines of that file into dependencies",
    "--requirement": "write the lines of that file into dependencies",
    "-c": "write the bounds into dependencies",
    "-e": "name a released version of the package",
    "--editable": "name a released version of the package",
    "-i": "name the index in indexes",
    "--index-url": "name the index in indexes",
    "--extra-index-url": "name the index in indexes",
    "-f": "name the index in indexes",
    "--find-links": "name the index in indexes",
    "--no-binary": "set allow-source-builds = true",
}


def check(line: str, source_builds: bool = False) -> str:
    """Return the requirement in its normal form; raises Wrong with the rule it breaks."""
    if _CONTROL.search(line):
        raise Wrong("a requirement holds a line break or another control character", "write one requirement per entry")
    text = re.sub(r"(^|\s)#.*$", "", line).strip()
    if not text:
        raise Wrong("a requirement is empty", "remove the entry")
    _refuse_option(text)
    _refuse_path(text)
    if has_secret(text):
        raise Wrong(f"{clean_hard(text)!r} carries credentials", _KEEP)
    return _parsed(text, source_builds)


def cuda_wheel(package: Any) -> str:
    """Return a package's name, perhaps with a version, as a requirement that means its CUDA wheel; raises Wrong."""
    try:
        wanted = Requirement(str(package))
    except InvalidRequirement:
        raise Wrong(f"{package!r} is not a package", 'write "name" or "name==1.2"') from None
    if wanted.url or wanted.marker or wanted.extras:
        raise Wrong(f"{package!r} must be a name, perhaps with a version")
    return check(f"{wanted.name} @ {CUDA_WHEELS}:{wanted.specifier}")


def name_of(requirement: str) -> str:
    """Return the normal name of a checked requirement's package."""
    return canonicalize_name(Requirement(requirement).name)


def _refuse_option(text: str) -> None:
    if text.startswith("-"):
        option = re.split(r"[\s=]", text, maxsplit=1)[0]
        hint = _INSTEAD.get(option) or _INSTEAD.get(option[:2], "") or "dependencies holds requirements only"
        raise Wrong(f"the installer option {option} is not a requirement", hint)


def _refuse_path(text: str) -> None:
    before = text.split("@", 1)[0].split(";", 1)[0]
    if _PATH.match(text) or "/" in before or "\\" in before:
        raise Wrong(f"{clean_hard(text)!r} is a path or a bare URL, not a requirement", "write 'name==version' or 'name @ https://…/name.whl'")


def _parsed(text: str, source_builds: bool) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        hint = "one '=' is not a comparison: write '=='" if re.search(r"[^=<>!~]=[^=]", text) else "write 'name>=1.2,<2'"
        raise Wrong(f"{clean_hard(text)!r} is not a requirement: {clean_hard(str(error).splitlines()[0])}", hint) from None
    if _FILE.search(requirement.name):
        raise Wrong(f"{clean_hard(text)!r} names a file, not a package", "write the package's name and version, or an https URL of a wheel")
    if requirement.url:
        _check_url(requirement.name, requirement.url, source_builds)
    return str(requirement)


_FILE = re.compile(r"\.(whl|zip|tar|tgz|gz|bz2|xz)$", re.IGNORECASE)


def _check_url(name: str, url: str, source_builds: bool) -> None:
    shown = f"{name} @ {clean_hard(url)}"
    scheme = urlsplit(url).scheme.lower()
    if "${" in url:
        raise Wrong(f"{shown!r} asks for a variable inside a URL", "write the URL out")
    safe = scheme == "https" or (scheme == "http" and urlsplit(url).hostname in _LOCAL)
    if scheme == CUDA_WHEELS or (safe and urlsplit(url).path.endswith(".whl")):
        return
    if scheme not in ("https", "git+https", "git+ssh"):
        raise Wrong(f"{shown!r} is refused: {f'{scheme} URLs are' if scheme else 'a path is'} not allowed", "use an https URL of a wheel")
    if not source_builds:
        raise Wrong(f"{shown!r} is not a wheel and would be built from source", "name a wheel, or set allow-source-builds = true")


def check_index(url: str) -> str:
    """Return the index's URL; raises Wrong where it is not https or carries credentials."""
    parts = urlsplit(url.strip())
    if has_secret(url) or "@" in parts.netloc:
        raise Wrong(f"the index {clean_hard(url)!r} carries credentials", _KEEP)
    local = parts.hostname in _LOCAL
    if not parts.netloc or not (parts.scheme == "https" or (parts.scheme == "http" and local)) or _CONTROL.search(url) or "${" in url:
        raise Wrong(f"the index {clean_hard(url)!r} is refused", "an index is an https URL")
    return url.strip()
