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
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator.problems import Owned

log = logging.getLogger(__name__)

APP = "comfy-env"
LOCK = "service.lock"
OWNER = "service.json"
GLANCE = 0.1  # seconds: somebody who asks whether it is served (`is_served`) holds the lock for a moment


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
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Say of what the system refuses that the folder cannot be used, and what to do."""
    try:
        yield
    except OSError as error:
        what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        raise ComfyEnvError(f"the state folder {folder} cannot be used: {what}", hint="name a folder of yours with --state") from error


class Instance:
    """The lock on a state folder. Use `take`, or `inherit` what a predecessor passed on."""

    def __init__(self, folder: Path, fd: int) -> None:
        self.folder = folder
        self.fd = fd

    @classmethod
    def take(cls, folder: Path) -> Instance:
        """Return the lock; raises Owned, naming the owner, in a moment where another process has it."""
        with usable(folder):
            fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + GLANCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(folder, fd)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > until:
                    os.close(fd)
                    raise _owned(folder) from error
            time.sleep(GLANCE / 5)

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
    with usable(folder):
        if not (folder / LOCK).exists():
            return False
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)   # shared: others may look at the same time
    except OSError as error:
        log.debug("%s is held: %s", folder / LOCK, error)
        return True
    finally:
        os.close(fd)
    return False


def _owned(folder: Path) -> Owned:
    owner = known_owner(folder)
    who = f"process {owner.pid}, generation {owner.generation}, at {owner.url}" if owner else "another process, which is just starting"
    return Owned(f"{folder} is served by {who}", hint="`comfy-env service status` asks it; --state FOLDER and --port make another one")
