"""What the program that runs py-rattler says: its progress, and why it does not go on."""

from __future__ import annotations

import sys
import threading
import time

from rattler.install import InstallerReporter

PERIOD_SECONDS = 0.5


class Refused(Exception):
    """It will not go on. ``kind`` names the error the host raises."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what


def say(line: str) -> None:
    """Tell a step."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Teller(InstallerReporter):
    """Hears py-rattler's installer, on threads of its own, and tells now and then how far it is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._lock = threading.Lock()
        self._linked = 0
        self._names: dict[int, str] = {}
        self._told = time.monotonic()

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        with self._lock:
            self._names[operation] = package_name
        return operation

    def on_download_start(self, cache_entry: int) -> int:
        return cache_entry

    def on_download_progress(self, download_idx: int, progress: int, total: int | None) -> None:
        size = f" of {total / 1e6:.1f}" if total else ""
        self._now_and_then(f"fetching {self._names.get(download_idx, 'a package')}: {progress / 1e6:.1f}{size} MB")

    def on_link_start(self, operation: int, package_name: str) -> int:
        self._now_and_then(f"linking {package_name} ({self._linked + 1} of {self._total})")
        return operation

    def on_link_complete(self, index: int) -> None:
        with self._lock:
            self._linked += 1

    def on_post_link_start(self, package_name: str, script_path: str) -> int:
        say(f"running {script_path} of {package_name}")
        return 0

    def _now_and_then(self, line: str) -> None:
        with self._lock:
            due = time.monotonic() - self._told >= PERIOD_SECONDS
            self._told = time.monotonic() if due else self._told
        if due:
            say(line)
