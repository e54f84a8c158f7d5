"""A system call that fails once: its first call, or its second, and so on until none is left to fail."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

from comfy_env import errors
from comfy_env.process import tree
from comfy_env.process.handle import LocalProcess
from comfy_env.values import Launch


class Nth:
    """Lets the nth call of one function fail, counted over the calls for whose caller ``counts`` holds.

    ``fired`` says how often it failed, and ``calls`` how often it was called, since it was armed last.
    """

    def __init__(self, place: Any, name: str, counts: Callable[[FrameType], bool] = lambda caller: True) -> None:
        self.place, self.name = place, name
        self.real = getattr(place, name)
        self.fired = 0
        self.calls = 0
        self._left = 0
        self._code = 0
        self._counts = counts
        self._lock = threading.Lock()

    @contextmanager
    def armed(self, nth: int, code: int) -> Iterator[None]:
        self._left, self._code, self.fired, self.calls = nth, code, 0, 0
        inherited = self.name not in vars(self.place)
        setattr(self.place, self.name, self._stand_in())
        try:
            yield
        finally:
            delattr(self.place, self.name) if inherited else setattr(self.place, self.name, self.real)

    def numbers(self, at_most: int = 200) -> Iterator[int]:
        """Give 1, 2 and so on, each to arm it with, as long as there was a call to fail."""
        for number in itertools.count(1):
            assert number < at_most, f"{self.name} fails for ever"
            yield number
            if not self.fired:
                return

    def _stand_in(self) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._counts(sys._getframe(1)) and self._is_it():
                raise OSError(self._code, os.strerror(self._code))
            return self.real(*args, **kwargs)

        return call

    def _is_it(self) -> bool:
        with self._lock:
            self._left -= 1
            self.calls += 1
            self.fired += self._left == 0
            return self._left == 0


def begun_and_killed(begin: Callable[[Launch], LocalProcess], launch: Launch, failing: AbstractContextManager[None]) -> None:
    """Begin a worker and kill it while something fails. Its start may be refused by name; what the kill left, the next one ends."""
    with failing:
        try:
            process = begin(launch)
        except errors.SpawnFailed:
            return
        killed = tree.end(process, nonce=launch.nonce, deadline_seconds=5)
    if killed.status is None:
        killed = tree.end(process, nonce=launch.nonce)
    assert killed.status is not None
    process.close()
