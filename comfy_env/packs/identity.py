"""Who a pack is, independent of the folder it lies in.

A published pack is known by publisher and name, an unpublished one by its repository and name, one without either by
the real place of its folder: so two packs in equally named folders differ, and one pack reached by two paths is one.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from comfy_env.packs.document import Document
from comfy_env.packs.redact import clean
from comfy_env.values import PackId

_REPOSITORY = ("repository", "source", "source code", "github", "homepage")


def identify(document: Document) -> PackId:
    """Return the identity of the pack the document describes."""
    folder = document.file.parent.resolve()
    project = document.table("project")
    name = canonicalize_name(_text(project, "name"))
    publisher = _text(document.table("tool", "comfy"), "PublisherId")
    url = _repository(document.table("project", "urls")) or _origin(folder)
    return PackId(_id(publisher, name, url, folder), _text(project, "version"), url, folder)


def key(pack: PackId, name: str = "") -> str:
    """Return the key of a pack's environment: readable, short, safe as a file name, and different for different packs."""
    readable = slug(re.split(r"[/#~]", pack.id.split("~")[0])[-1])[:40].strip("-._")
    digest = hashlib.sha256(f"{pack.id}\0{name}".encode()).hexdigest()[:8]
    return "-".join(filter(None, [readable or "pack", slug(name)[:24].strip("-._"), digest]))


def slug(text: str) -> str:
    """Return the text in lower-case ASCII letters, digits and '-', '_', '.'."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")


def _id(publisher: str, name: str, url: str, folder: Path) -> str:
    if publisher and name:
        return f"{slug(publisher)}/{slug(name)}"
    if url:
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}{parts.path}".lower().removesuffix(".git").strip("/")
        return f"{place}#{slug(name)}" if name else place
    return f"{slug(name or folder.name) or 'pack'}~{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key, "")
    return value.strip() if isinstance(value, str) else ""


def _repository(urls: dict[str, Any]) -> str:
    named = {label.lower(): url for label, url in urls.items() if isinstance(url, str) and "://" in url}
    found = [named[label] for label in _REPOSITORY if label in named]
    return clean(found[0]) if found else ""


def _origin(folder: Path) -> str:
    """Return where the folder was cloned from; '' where it is no clone."""
    config = _git_folder(folder) / "config"
    if not config.is_file():
        return ""
    text = config.read_text(encoding="utf-8", errors="replace")
    section = re.search(r'^\[remote "origin"\]\s*$(.*?)(?=^\[|\Z)', text, re.MULTILINE | re.DOTALL)
    url = re.search(r"^\s*url\s*=\s*(\S+)\s*$", section.group(1), re.MULTILINE) if section else None
    return clean(_as_url(url.group(1))) if url else ""


def _git_folder(folder: Path) -> Path:
    git = folder / ".git"
    if not git.is_file():
        return git
    pointer = git.read_text(encoding="utf-8", errors="replace").partition("gitdir:")[2].strip()
    return folder / pointer


def _as_url(remote: str) -> str:
    """Return `git@host:owner/name` as a URL; a path on this machine names no pack."""
    short = re.fullmatch(r"(?:[^@/\s]+@)?([^:/\s]+\.[^:/\s]+):(?!//)(.+)", remote)
    if short:
        return f"https://{short.group(1)}/{short.group(2)}"
    return remote if "://" in remote and not remote.startswith("file:") else ""
