"""Objects that stay in the worker while the host holds references to them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from typing import Any

from .wire.faults import ReferenceGone


class Resident:
    """Objects by number. Each time one is sent its count grows; each reference that the host drops lowers it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._objects: dict[int, list[Any]] = {}   # number -> [object, count]
        self._known: dict[int, int] = {}           # id of an object held here -> its number

    def __len__(self) -> int:
        return len(self._objects)

    def hold(self, obj: Any) -> int:
        """Keep an object for one more reference and return its number."""
        with self._lock:
            number = self._known.get(id(obj))
            if number is None:
                number = self._known[id(obj)] = next(self._numbers)
                self._objects[number] = [obj, 0]
            self._objects[number][1] += 1
            return number

    def get(self, number: int) -> Any:
        """Return the object of a number; raises ReferenceGone."""
        entry = self._objects.get(number)
        if entry is None:
            raise ReferenceGone(f"there is no object {number} in this worker (any more)")
        return entry[0]

    def drop(self, numbers: Iterable[int]) -> None:
        """Lower the counts of these numbers and let go of what nobody refers to."""
        gone = []   # their destructors may run anything: not under the lock
        with self._lock:
            for number in numbers:
                entry = self._objects.get(number)
                if entry is None:
                    continue
                entry[1] -= 1
                if entry[1] <= 0:
                    gone.append(self._objects.pop(number))
                    del self._known[id(entry[0])]
        gone.clear()
