"""Sources of a pack, watched for changes while a worker runs them.

A worker is a cache of its own code. A change counts when it has settled, that is, one more look found nothing newer, and
what changed is checked by the environment's own interpreter, so that half-written code replaces nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from comfy_env.envs import tools

MOST_FILES = 20_000
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
CHECK_SECONDS = 20.0
CHECK = """
import sys
for path in sys.stdin.read().split("\\0"):
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except FileNotFoundError:
        continue
    except (SyntaxError, ValueError) as error:
        sys.exit("%s:%s: %s" % (path, getattr(error, "lineno", None) or "?", error.args[0]))
"""

Look = Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Change:
    """``settled``: nothing newer was found by one more look; then ``paths`` are the files that differ from the worker's."""

    settled: bool
    paths: tuple[str, ...] = ()


class SourceWatch:
    """Remembers the sources as a worker was born with them; asked by one thread. ``poll`` costs one stat per file."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._born = self._seen = self._told = look(self._roots)

    def poll(self) -> Change | None:
        """Return what is new since the last time, None for nothing."""
        now = look(self._roots)
        if now != self._seen:
            self._seen = now
            return Change(settled=False)
        if now == self._told:
            return None
        self._told = now
        return Change(True, tuple(sorted(path for path in now.keys() | self._born.keys() if now.get(path) != self._born.get(path))))


def look(roots: Iterable[Path]) -> Look:
    """Return what tells each Python file below the roots from every other state of it."""
    found: dict[str, tuple[int, int, int]] = {}
    for entry in _files(roots):
        with contextlib.suppress(OSError):  # removed a moment ago
            status = entry.stat()
            found[entry.path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        if len(found) >= MOST_FILES:
            break
    return found


def _files(roots: Iterable[Path]) -> Iterator[os.DirEntry[str]]:
    folders = [str(root) for root in roots]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:  # a folder that is gone or not ours has no files
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if _is_the_packs(entry):
                        folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    yield entry


def _is_the_packs(folder: os.DirEntry[str]) -> bool:
    """Tell whether a folder may hold the pack's own code: no hidden one, no environment, nothing that is installed."""
    if folder.name.startswith(".") or folder.name in SKIPPED:
        return False
    return not os.path.exists(os.path.join(folder.path, "pyvenv.cfg"))


def fault_of(paths: Iterable[str], interpreter: str | Path) -> str:
    """Return what is wrong with changed files in the eyes of an environment's interpreter, '' for nothing."""
    answer = tools.ask([interpreter, "-I", "-S", "-c", CHECK], CHECK_SECONDS, text="\0".join(paths))
    return answer.err.strip().rpartition("\n")[2] or answer.trouble if answer.trouble else ""
