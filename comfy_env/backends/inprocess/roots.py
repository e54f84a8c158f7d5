"""Import roots of packs that run in the host: at the end of its search path, so that nothing of the host is shadowed."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Roots:
    """Folders borrowed by workers; each leaves the search path with its last borrower, if it was not there before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._borrowed: Counter[str] = Counter()

    @contextmanager
    def borrow(self, folders: Iterable[str]) -> Iterator[None]:
        """Have these folders searched for modules while the context is open."""
        taken = self._take(tuple(folders))
        try:
            yield
        finally:
            self._give_back(taken)

    def _take(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        with self._lock:
            taken = tuple(folder for folder in folders if self._borrowed[folder] or folder not in sys.path)
            sys.path.extend(folder for folder in taken if not self._borrowed[folder])
            self._borrowed.update(taken)
            return taken

    def _give_back(self, taken: tuple[str, ...]) -> None:
        with self._lock:
            self._borrowed.subtract(taken)
            for folder in taken:
                if not self._borrowed[folder] and folder in sys.path:
                    sys.path.remove(folder)
