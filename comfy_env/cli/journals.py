"""Reads what pools wrote down: the journals of hosts and the stories of pools that closed. Needs no connection to any."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfy_env.process import locks, rundir
from comfy_env.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """A host's journal. ``alive`` is what its lock says; ``written`` is a time of the wall clock."""

    pid: int
    nonce: str
    written: float
    alive: bool
    envs: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Tale:
    """A story of an environment: from a running host, from one that died, or from one that closed (``pid`` None)."""

    key: str
    lines: tuple[str, ...]
    told: float
    pid: int | None = None
    alive: bool = False


def runtime_folder(settings: Settings) -> Path:
    """Return where this user's hosts have their run folders."""
    return settings.runtime_folder or rundir.default_runtime_folder()


def hosts(runtime: Path) -> list[Host]:
    """Return every host that has a journal, the dead ones that nobody swept yet included."""
    found = (_host(path, runtime) for path in sorted(runtime.glob("host-*/journal.json")))
    return [host for host in found if host is not None]


def tales(runtime: Path) -> list[Tale]:
    """Return every story there is, the newest last."""
    living = [Tale(entry["key"], tuple(entry.get("story", ())), host.written, host.pid, host.alive)
              for host in hosts(runtime) for entry in host.envs]
    ended = [Tale(page["key"], tuple(page.get("story", ())), page.get("ended", 0.0), page.get("host"))
             for page in map(_page, sorted(runtime.glob("stories/*.json"))) if page]
    return sorted(living + ended, key=lambda tale: (tale.alive, tale.told))


def _host(path: Path, runtime: Path) -> Host | None:
    page = _page(path)
    if not page:
        return None
    nonce = path.parent.name.removeprefix("host-")
    return Host(page.get("pid", 0), nonce, page.get("written", 0.0), _alive(runtime / f"host-{nonce}.lock"), tuple(page.get("envs", ())))


def _alive(lock: Path) -> bool:
    """Whether a host holds its lock; a lock that cannot be asked proves nothing, so its host counts as dead."""
    try:
        return locks.ours(lock) or not locks.query(lock).free
    except OSError as error:
        log.debug("the lock %s cannot be asked: %s", lock, error)
        return False


def _page(path: Path) -> dict[str, Any]:
    """Return a JSON file's object, empty where it vanished or is damaged: a host may be closing right now."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        log.debug("%s cannot be read: %s", path, error)
        return {}
    return page if isinstance(page, dict) else {}
