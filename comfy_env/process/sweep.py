"""The sweep at start: what a host that died could not end or remove itself.

A host is dead when its lock can be taken; the sweep holds it while it works, so two sweeps never meet. Nobody is ended
on a guess: see the table in `verdicts`. Nothing is matched by a program line, a parent, or a bare process number.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

from comfy_env.errors import ComfyEnvError
from comfy_env.process import locks, procs, records, verdicts
from comfy_env.process.keepsakes import keep_stories
from comfy_env.process.patience import Patience
from comfy_env.process.pins import Pin
from comfy_env.process.rundir import default_runtime_folder
from comfy_env.process.verdicts import Act, Verdict
from comfy_env.process.waits import readable

log = logging.getLogger(__name__)
_HOST_LOCK = re.compile(r"^(host|new)-([0-9a-f]{32})\.lock$")
_HOST_FOLDER = re.compile(r"^host-[0-9a-f]{32}$")
_SECONDS = 2.0    # for ending what one dead host left
_LOOK = 0.01


@dataclass
class SweepReport:
    """What a sweep did, or would do. ``skipped`` pairs a path with the reason it was left alone."""

    killed: list[int] = field(default_factory=list)
    reaped: list[int] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)


def sweep(runtime_folder: Path | None = None, dry_run: bool = False) -> SweepReport:
    """End and remove what dead hosts left in a runtime folder; with ``dry_run`` only report it."""
    report = SweepReport()
    runtime = (runtime_folder or default_runtime_folder()).absolute()
    if not _is_private(runtime):
        return report
    for path in sorted(runtime.iterdir()):
        found = _HOST_LOCK.match(path.name)
        if found and not locks.ours(path):
            _sweep_host(path, found.group(2), report, dry_run)
        elif _HOST_FOLDER.match(path.name) and not path.with_name(f"{path.name}.lock").exists() and path.exists():
            report.skipped.append((path, "its host's lock is missing, so whether the host lives cannot be told"))
    return report


def _is_private(folder: Path) -> bool:
    """Return whether a folder is there and this user's own; files of others are never believed."""
    with contextlib.suppress(FileNotFoundError):
        return folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
    return False


def _sweep_host(path: Path, nonce: str, report: SweepReport, dry_run: bool) -> None:
    try:
        if dry_run:
            if locks.query(path).free:
                _Host(path, nonce, report, dry_run).sweep()
            return
        lock = locks.take(path)
    except (OSError, ComfyEnvError) as error:  # gone, or taken by another pool or sweep of this process since; refused: not ours
        log.debug("%s was left alone: %s", path, error)
        return
    if lock is not None:
        try:
            _Host(path, nonce, report, dry_run).sweep()
        finally:
            lock.release()


class _Host:
    """What one dead host left."""

    def __init__(self, lock_path: Path, nonce: str, report: SweepReport, dry_run: bool) -> None:
        self.lock_path = lock_path
        self.folder = lock_path.parent / f"host-{nonce}"
        self.nonce = nonce
        self.report = report
        self.dry_run = dry_run

    def sweep(self) -> None:
        workers = sorted(path for path in self.folder.glob("w-*") if path.is_dir() and not path.is_symlink())
        if all([self._sweep_worker(worker) for worker in workers]):
            if not self.dry_run:
                keep_stories(self.folder)
            self._remove(self.folder)
            self._remove(self.lock_path)

    def _sweep_worker(self, folder: Path) -> bool:
        """Return whether nothing of the worker is left."""
        verdict = self._judge(folder)
        trouble = verdict.why if verdict.act in (Act.SKIP, Act.AGAIN) else ""
        if verdict.act is Act.END:
            trouble = self._end(folder, verdict)
        if trouble:
            log.warning("%s was left alone: %s", folder, trouble)
            self.report.skipped.append((folder, trouble))
            return False
        self._remove(folder)
        return True

    def _judge(self, folder: Path) -> Verdict:
        """Judge a worker; one that is ending is waited for, which takes as long as its memory is large."""
        patience = Patience(_SECONDS)
        while (verdict := verdicts.judge(folder, self.nonce)).act is Act.AGAIN and patience.left():
            readable([], _LOOK)
        return verdict

    def _end(self, folder: Path, verdict: Verdict) -> str:
        """End everybody who belongs to a record; return what is wrong, '' for nothing."""
        record = verdict.record
        assert record is not None, "only a readable record is ended"
        if self.dry_run:
            self.report.killed += sorted({pid for pid in (verdict.worker, *_carriers(record)) if pid})
            return ""
        if verdict.worker:
            self._end_worker(folder, verdict.worker, record)
        left = self._end_carriers(record)
        self._collect(record.pid, record.started)
        return f"still alive after SIGKILL: {left}" if left else ""

    def _end_worker(self, folder: Path, pid: int, record: records.Record) -> None:
        """End the worker and its group, if it is still the lock's holder now that it is pinned."""
        with Pin(pid) as pin:
            if verdicts.judge(folder, self.nonce).worker != pid:
                return
            self._killed(pid, record)
            if pin.firm and _leads_on(pid, record):
                pin.send(signal.SIGSTOP)  # a stopped process cannot leave its group's number to somebody else
                if not pin.ended():
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(record.pgid, signal.SIGKILL)
            pin.send(signal.SIGKILL)
            Patience(_SECONDS).wait(lambda seconds: readable([pin.fd], seconds))

    def _end_carriers(self, record: records.Record) -> list[int]:
        """End everybody who carries a record's nonces; return who would not go."""
        patience = Patience(_SECONDS)
        while (left := _carriers(record)) and patience.left():
            for pid in left:
                self._end_carrier(pid, record)
            readable([], _LOOK)
        return left

    def _end_carrier(self, pid: int, record: records.Record) -> None:
        with Pin(pid) as pin:
            if procs.carries_both(pid, record.nonce, record.host_nonce):
                self._killed(pid, record)
                pin.send(signal.SIGKILL)

    def _killed(self, pid: int, record: records.Record) -> None:
        if pid not in self.report.killed:
            log.warning("ending process %d of environment %s, generation %d: its host is dead", pid, record.env, record.generation)
            self.report.killed.append(pid)

    def _collect(self, pid: int, started: int) -> None:
        """Collect a dead worker that is our own child: this process replaced its program (execv) since it started it."""
        row = procs.row(pid) if pid > 1 else None
        if row is not None and row.dead and row.parent == os.getpid() and row.started == started:
            with contextlib.suppress(ChildProcessError):  # collected by somebody else
                os.waitpid(pid, os.WNOHANG)
                self.report.reaped.append(pid)

    def _remove(self, path: Path) -> None:
        if not os.path.lexists(path):
            return
        self.report.removed.append(path)
        if self.dry_run:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _leads_on(pid: int, record: records.Record) -> bool:
    """Return whether a worker is in the group its host made for it, which is not ours."""
    with contextlib.suppress(ProcessLookupError):
        return record.pgid > 1 and record.pgid == os.getpgid(pid) and record.pgid != os.getpgrp()
    return False


def _carriers(record: records.Record) -> list[int]:
    """Return every living process that carries both nonces of a record and may be ended."""
    return [
        row.pid
        for row in procs.rows()
        if not row.dead and not procs.untouchable(row) and procs.carries_both(row.pid, record.nonce, record.host_nonce)
    ]
