"""Notices that the sources on disk are no longer those that run. Pure, but for `snapshot` and `problem`, which only read.

WATCH → SETTLING → TESTING: a change must hold still for one more look, then its syntax is checked and a new interpreter
imports all of it; only then is a restart armed. Compared with what this process was started from by `!=`, so going back
is a change too, and a fresh process sees none.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
INSTALLED = ("site-packages", "dist-packages")
SUFFIXES = (".py", ".html", ".js", ".css")
Snapshot = Mapping[str, tuple[int, int]]


class Phase(enum.Enum):
    WATCH = "watch"
    SETTLING = "settling"
    TESTING = "testing"


class Do(enum.Enum):
    """What a look at the sources asks for."""

    NOTHING = "nothing"
    TEST = "test"  # it has settled: test it
    ARM = "arm"  # it is sound
    CALL_OFF = "call off"  # it is again what runs
    TELL = "tell"  # it is broken; said once


@dataclass(frozen=True)
class Watch:
    """``boot`` is what runs, ``last`` what the last look saw, ``judged`` what was armed, told or called off last."""

    boot: str
    last: str
    judged: str
    phase: Phase = Phase.WATCH

    @classmethod
    def of(cls, boot: str) -> Watch:
        return cls(boot, boot, boot)


def looked(watch: Watch, seen: str) -> tuple[Watch, Do]:
    """Return the watch after a look. A tree that changes while it is tested has not settled."""
    if seen != watch.last:
        return replace(watch, last=seen, phase=Phase.WATCH if seen == watch.judged else Phase.SETTLING), Do.NOTHING
    if watch.phase is not Phase.SETTLING:
        return watch, Do.NOTHING
    if seen == watch.boot:
        return replace(watch, judged=seen, phase=Phase.WATCH), Do.CALL_OFF
    return replace(watch, phase=Phase.TESTING), Do.TEST


def tested(watch: Watch, seen: str, sound: bool) -> tuple[Watch, Do]:
    """Return the watch after a test of what was `seen`; the test of a tree that changed meanwhile says nothing."""
    if watch.phase is not Phase.TESTING or seen != watch.last:
        return watch, Do.NOTHING
    return replace(watch, judged=seen, phase=Phase.WATCH), Do.ARM if sound else Do.TELL


# ---------------------------------------------------------------- the disk


def is_checkout(package: Path = PACKAGE) -> bool:
    """Return whether the package runs from a folder of sources that somebody works in, not from an installed copy."""
    return not any(part in INSTALLED for part in package.parts)


def snapshot(package: Path = PACKAGE) -> Snapshot:
    """Return every source file with its size and time of change; one that vanishes meanwhile counts as empty."""
    return dict(_sources(package))


def _sources(package: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            if name.endswith(SUFFIXES) and not name.startswith("."):   # an editor's own, which nothing imports
                path = os.path.join(folder, name)
                found = (0, 0)
                with contextlib.suppress(OSError):  # it vanished, or leads nowhere: reading it will say so
                    status = os.stat(path)
                    found = (status.st_size, status.st_mtime_ns)
                yield os.path.relpath(path, package), found


def fingerprint(seen: Snapshot) -> str:
    """Return what tells this state of the sources from any other."""
    text = "".join(f"{path}\0{size}\0{changed}\n" for path, (size, changed) in seen.items())
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def changed(before: Snapshot, now: Snapshot) -> list[str]:
    """Return the files that are new or differ."""
    return [path for path, found in now.items() if before.get(path) != found]


def problem(paths: Iterable[str], package: Path = PACKAGE) -> str:
    """Return the first syntax error in some files, '' where there is none. Writes nothing."""
    for path in paths:
        try:
            if path.endswith(".py"):
                compile((package / path).read_bytes(), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        except FileNotFoundError as error:
            return f"{path} vanished: {error.strerror}"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    return ""
