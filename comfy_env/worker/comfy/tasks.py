"""Coroutine functions of nodes that go on between the host's calls, on an event loop of their own thread.

The lane carries one call at a time, but core lets several coroutines wait at once. So a coroutine is started by one call
and collected by later ones, each of which waits for a short turn only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Optional

TURN = 0.05   # s that a collecting call waits before it leaves the lane to others


class Tasks:
    """The started functions of this worker by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._futures: dict[int, Future] = {}
        self._changed = threading.Condition()
        self._ended = 0
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def start(self, work: Coroutine[Any, Any, Any]) -> int:
        """Start a coroutine and return its number."""
        number = next(self._numbers)
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        self._futures[number] = future
        future.add_done_callback(self._one_ended)
        return number

    def result(self, number: int, seconds: float) -> Any:
        """Return what a coroutine returned or raise what it raised; None if it is not over when this turn is."""
        future = self._futures.get(number)
        if future is None:
            raise LookupError("the worker that ran this coroutine is gone")
        with self._changed:
            ended = self._ended
            self._changed.wait_for(lambda: future.done() or self._ended != ended, seconds)
        if not future.done():
            return None
        del self._futures[number]
        return future.result()

    def cancel(self, number: int) -> None:
        """Cancel a coroutine and forget it."""
        future = self._futures.pop(number, None)
        if future is not None:
            future.cancel()

    def _one_ended(self, future: Future) -> None:
        with self._changed:
            self._ended += 1
            self._changed.notify_all()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="comfy_env coroutines", daemon=True).start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop as ComfyUI runs its own: all of it in inference mode."""
    torch = sys.modules.get("torch")
    with contextlib.nullcontext() if torch is None else torch.inference_mode():
        loop.run_forever()


tasks = Tasks()
