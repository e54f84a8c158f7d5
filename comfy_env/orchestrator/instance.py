"""One service per state folder: a kernel lock on an open file description, which a successor inherits without a gap.

Whoever has a descriptor of it holds it; it is free when the last process of the line has ended, however it ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator.problems import Owned

log = logging.getLogger(__name__)

APP = "comfy-env"
LOCK = "service.lock"
OWNER = "service.json"


@dataclass(frozen=True)
class Owner:
    """Who serves a state folder, as it wrote itself down."""

    pid: int
    generation: int
    url: str
    version: str


def state_path(given: Path | None) -> Path:
    """Return where an instance's state folder is, whether it is there or not."""
    return (given if given is not None else platformdirs.user_state_path(APP, appauthor=False) / "service").absolute()


def state_folder(given: Path | None) -> Path:
    """Return the instance's state folder, made so that only this user can enter it."""
    folder = state_path(given)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        hint = "name a folder of yours in COMFY_ENV_ORCH_STATE_DIR"
        raise ComfyEnvError(f"the state folder {folder} cannot be used: {error.strerror}", hint=hint) from error
    return folder


class Instance:
    """The lock on a state folder. Use `take`, or `inherit` what a predecessor passed on."""

    def __init__(self, folder: Path, fd: int) -> None:
        self.folder = folder
        self.fd = fd

    @classmethod
    def take(cls, folder: Path) -> Instance:
        """Return the lock; raises Owned, naming the owner, at once where another process has it."""
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise _owned(folder) from None
        return cls(folder, fd)

    @classmethod
    def inherit(cls, folder: Path, fd: int) -> Instance:
        """Take over a lock whose descriptor came with a handover; raises ComfyEnvError if it is another file's."""
        ours, theirs = os.stat(folder / LOCK), os.fstat(fd)
        if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
            raise ComfyEnvError(f"the inherited lock is not that of {folder}")
        os.set_inheritable(fd, False)
        return cls(folder, fd)

    def tell(self, owner: Owner) -> None:
        """Write down who serves, whole or not at all."""
        new = self.folder / f".{OWNER}.{os.getpid()}"
        new.write_text(json.dumps(asdict(owner)), encoding="utf-8")
        new.chmod(0o600)
        os.replace(new, self.folder / OWNER)

    def close(self) -> None:
        """Let go; a successor that has the descriptor still holds the lock."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def known_owner(folder: Path) -> Owner | None:
    """Return who wrote itself down last; it may have ended since (see `is_served`)."""
    with contextlib.suppress(OSError, ValueError, TypeError):  # never written, or half gone
        return Owner(**json.loads((folder / OWNER).read_text(encoding="utf-8")))
    return None


def is_served(folder: Path) -> bool:
    """Return whether a process holds the folder's lock now."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        log.debug("%s is held: %s", folder / LOCK, error)
        return True
    finally:
        os.close(fd)
    return False


def _owned(folder: Path) -> Owned:
    owner = known_owner(folder)
    who = f"process {owner.pid}, generation {owner.generation}, at {owner.url}" if owner else "another process, which is just starting"
    return Owned(f"{folder} is served by {who}", hint="use `comfy-env open`, or name another folder in COMFY_ENV_ORCH_STATE_DIR")
