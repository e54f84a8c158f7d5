"""Run folders: what a host and its workers have on disk while they live.

::

    <runtime folder>/                 0700, one per user
        host-<nonce>.lock             locked by the host for life: proof that it lives
        host-<nonce>/
            worker/                   the copy of comfy_env/worker that every worker of this host runs
            w-<env>-<generation>-…/   a worker's run folder, with its record
        logs/                         log files of workers, where no other folder is set
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from comfy_env.errors import ComfyEnvError
from comfy_env.process import locks, records

log = logging.getLogger(__name__)
SOURCE = Path(__file__).resolve().parent.parent / "worker"
HINT = "set COMFY_ENV_RUNTIME to a folder of yours on a local disk"
_TRIES = 5


def default_runtime_folder() -> Path:
    """Return the user's own folder under the system's folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"comfy-env-{os.getuid()}"


def private_folder(folder: Path) -> Path:
    """Make a folder that only this user can enter, or check that one is; raises ComfyEnvError."""
    try:
        _folder(folder, parents=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ComfyEnvError(f"the runtime folder {folder} is not a folder of this user", hint=HINT)
        folder.chmod(0o700)
    except OSError as error:
        raise ComfyEnvError(f"the runtime folder {folder} cannot be used: {error.strerror}", hint=HINT) from error
    return folder


@dataclass(frozen=True)
class WorkerRun:
    """One worker's run folder. ``record_path`` is what the worker locks."""

    folder: Path
    nonce: str

    @property
    def record_path(self) -> Path:
        return self.folder / records.NAME

    def close(self) -> None:
        """Remove the folder; idempotent."""
        _remove(self.folder)


class HostRun:
    """This host's part of the runtime folder. Use `open`; a forked child's copy does nothing at `close`."""

    def __init__(self, nonce: str, lock: locks.HeldLock, worker_files: dict[str, bytes], guard: int) -> None:
        self.nonce = nonce
        self.folder = lock.path.parent / f"host-{nonce}"
        self._lock = lock
        self._pid = os.getpid()
        self._worker_files = worker_files
        self._guard = guard

    @classmethod
    def open(cls, runtime_folder: Path | None = None) -> HostRun:
        """Make this host's run folder and lock it for life; raises ComfyEnvError naming the folder."""
        runtime = private_folder((runtime_folder or default_runtime_folder()).absolute())
        with contextlib.ExitStack() as undo:
            try:
                files, guard = _snapshot(SOURCE), _keep_from_cleaners(runtime)
                undo.callback(os.close, guard)
                nonce, lock = _new_lock(runtime)
                undo.pop_all()
                run = cls(nonce, lock, files, guard)
                undo.callback(run.close)
                run._fill()
            except OSError as error:
                raise ComfyEnvError(f"the runtime folder {runtime} cannot be used: {error}", hint=HINT) from error
            undo.pop_all()
        return run

    @property
    def worker_folder(self) -> Path:
        """The copy of the worker package, made again from memory if something removed it."""
        folder = self.folder / "worker"
        if not all((folder / name).exists() for name in self._worker_files):
            self._fill()
        return folder

    @property
    def log_folder(self) -> Path:
        """Where worker logs go by default: they outlive the host."""
        return self.folder.parent / "logs"

    def new_worker(self, env: str, generation: int) -> WorkerRun:
        """Make the run folder of a worker that is about to be started."""
        nonce = secrets.token_hex(16)
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", env)[:40]
        folder = self.folder / f"w-{readable}-{generation}-{nonce[:8]}"
        _folder(folder, parents=True)
        return WorkerRun(folder, nonce)

    def close(self) -> None:
        """Remove everything of this host; idempotent. The lock goes last: without it the folder would be nobody's."""
        if self._guard < 0 or os.getpid() != self._pid:
            return
        _remove(self.folder)
        with contextlib.suppress(FileNotFoundError):
            self._lock.path.unlink()
        self._lock.release()
        os.close(self._guard)
        self._guard = -1

    def _fill(self) -> None:
        _folder(self.folder)
        for name, content in self._worker_files.items():
            path = self.folder / "worker" / name
            _folder(path.parent, parents=True)
            path.write_bytes(content)
            path.chmod(0o600)


def _remove(folder: Path) -> None:
    """Remove a folder of ours; tried again where the system refused for a moment."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):  # told below if it stays so
            shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
    log.warning("%s could not be removed", folder)


def _folder(path: Path, parents: bool = False) -> None:
    """Make a folder of this user only, whatever the umask says."""
    if parents and not path.parent.is_dir():
        _folder(path.parent, parents=True)
    with contextlib.suppress(FileExistsError), contextlib.ExitStack() as undo:
        path.mkdir(mode=0o700)
        undo.callback(path.rmdir)
        path.chmod(0o700)
        undo.pop_all()


def _snapshot(source: Path) -> dict[str, bytes]:
    """Read the worker package once, so that an upgrade under a running host never mixes two versions."""
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(source)): path.read_bytes() for path in sorted(files)}


def _new_lock(runtime: Path) -> tuple[str, locks.HeldLock]:
    """Return a new host's nonce and lock. It gets its lasting name once it is locked, so no sweep sees it free."""
    for _ in range(_TRIES):
        nonce = secrets.token_hex(16)
        lock = locks.take(runtime / f"new-{nonce}.lock", create=True)
        if lock is not None:
            with contextlib.suppress(FileNotFoundError):  # a sweep took it for litter just before it was locked
                lock.moved(runtime / f"host-{nonce}.lock")
                return nonce, lock
            lock.release()
    raise ComfyEnvError(f"no lock could be had in {runtime}", hint=HINT)


def _keep_from_cleaners(runtime: Path) -> int:
    """Hold a shared flock on the folder: systemd-tmpfiles leaves such folders alone, however old."""
    fd = os.open(runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without flock
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return fd
