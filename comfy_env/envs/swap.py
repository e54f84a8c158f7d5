"""The folder of one environment: builds lie in it side by side, the stamp names the one in use.

A build is made where it stays, so no script, config or compiled file in it ever names another place.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from pathlib import Path

from comfy_env.envs import stamps
from comfy_env.envs.stamps import Stamp

log = logging.getLogger(__name__)


def new_build(folder: Path) -> Path:
    """Return the place for a new build; its parent exists afterwards, itself it does not."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / uuid.uuid4().hex[:8]


def adopt(folder: Path, stamp: Stamp) -> None:
    """Make the stamp's build the one in use."""
    stamps.write(folder, stamp)


def clear(folder: Path) -> None:
    """Remove what no stamp names: the leftovers of killed builds, and builds that were replaced and no process runs any more."""
    stamp, problem = stamps.read(folder)
    if problem or not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.name in (stamps.FILE, stamps.PRELOADS, stamp.build if stamp else ""):
            continue
        users = users_of(entry)
        if users:
            log.info("%s stays until process %s ends", entry, ", ".join(map(str, users)))
        else:
            delete(entry)


def delete(path: Path) -> None:
    """Remove a file or a whole folder; what cannot be removed is left, and logged."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s is left behind: %s", path, error)


def users_of(folder: Path) -> tuple[int, ...]:
    """Return the processes that run a program of the folder, as far as the system tells (Linux)."""
    prefix = str(folder).encode("utf-8", "surrogateescape") + b"/"
    return tuple(int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _program(entry).startswith(prefix))


def _program(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""   # it ended while we looked
