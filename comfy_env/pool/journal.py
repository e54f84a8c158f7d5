"""Writes what the pool knows to its run folder, for `comfy-env ps` and `comfy-env story` in other processes.

Written by the watcher's tick and by whoever changes an environment's life, at most every quarter of a second; the last
word is written when the pool closes. A journal that cannot be written is told once and never disturbs a call.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comfy_env.lifecycle.story import line_text
from comfy_env.pool.seat import Seat
from comfy_env.pool.views import picture
from comfy_env.process import keepsakes

if TYPE_CHECKING:
    from comfy_env.pool.house import House
    from comfy_env.process.rundir import HostRun

log = logging.getLogger(__name__)
LEAST_PAUSE = 0.25


class Journal:
    def __init__(self, house: House, seats: Callable[[], Iterable[Seat]]) -> None:
        self._house = house
        self._seats = seats
        self._lock = threading.Lock()
        self._pen = threading.Lock()   # held while something is written: the run folder is removed afterwards
        self._timer: threading.Timer | None = None
        self._told = False
        self._closed = False

    def changed(self, seat: Seat) -> None:
        """Have the journal written soon."""
        if self._house.opened is None:
            return
        with self._lock:
            if self._timer is None and not self._closed:
                self._timer = self._started()

    def _started(self) -> threading.Timer | None:
        """Return a running timer; None where the interpreter exits and starts no thread any more: `close` writes the last word."""
        timer = threading.Timer(LEAST_PAUSE, self._later)
        timer.name = "comfy-env journal"
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:
            log.debug("the journal is not written now: %s", error)
            return None
        return timer

    def _later(self) -> None:
        with self._lock:
            self._timer = None
        self.write()

    def write(self) -> None:
        """Write the journal now."""
        with self._pen:
            host = self._house.opened
            if host is not None and not self._closed:
                self._write(host)

    def _write(self, host: HostRun) -> None:
        page = {
            "pid": os.getpid(),
            "host_nonce": host.nonce,
            "written": time.time(),
            "envs": [_entry(seat) for seat in self._seats()],
        }
        self._save(host.folder / "journal.json", page)

    def close(self) -> None:
        """Leave each environment's story behind, where the next host's command line finds it."""
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()
        with self._pen:
            self._leave_stories()

    def _leave_stories(self) -> None:
        host = self._house.opened
        if host is None:
            return
        for seat in self._seats():
            keepsakes.save(host.folder.parent / "stories", seat.key, {"key": seat.key, "story": _story(seat), "ended": time.time()})

    def _save(self, path: Path, page: dict[str, Any]) -> None:
        try:
            keepsakes.write_private(path, json.dumps(page))
        except OSError as error:
            if not self._told:
                log.warning("the journal %s cannot be written: %s", path, error)
            self._told = True


def _story(seat: Seat) -> list[str]:
    """Return the story's lines with the time of day, since they are read later."""
    now, wall = seat.clock(), time.time()
    return [f"{_clock(wall - (now - line.at))}  #{line.generation}  {line_text(line)}" for line in seat.env.ledger.story.lines]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-3]


def _entry(seat: Seat) -> dict[str, Any]:
    now = seat.clock()
    record = picture(seat, now)
    return {
        "key": seat.key,
        "generation": record.generation,
        "state": record.state,
        "backend": record.backend,
        "pid": record.pid,
        "python": record.python,
        "held": record.held,
        "calls": record.calls,
        "idle": record.idle,
        "born": time.time() - (now - record.born) if record.born else None,
        "story": _story(seat),
    }
