"""What runs in this ComfyUI: the prompt, its interrupt, and the moments at which menus must be asked again."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable

from comfy_env.comfyui import core

PERIOD = 0.02     # s between two looks at core's interrupt flag while an isolated node runs
LINGER = 5.0      # s the watching thread stays after the last node


class RunningPrompt:
    """The port that tells the pool which prompt runs."""

    def running(self) -> str:
        """Return the id of the running prompt, '' for none."""
        queue = getattr(core.server(), "prompt_queue", None)
        items = list(getattr(queue, "currently_running", {}).values())
        return str(items[0][1]) if items else ""


class Watched:
    """A call that core's interrupt flag ends, as a context. A class of its own: it is entered at every call."""

    __slots__ = ("_env", "_me", "_watch")

    def __init__(self, watch: InterruptWatch, env: str) -> None:
        self._watch, self._env = watch, env

    def __enter__(self) -> None:
        self._me = self._watch.enter(self._env)

    def __exit__(self, *error: object) -> None:
        self._watch.leave(self._me)


class InterruptWatch:
    """Carries core's interrupt flag to the isolated nodes that run.

    Core only looks at its flag between nodes and in progress bars, so while a node runs elsewhere somebody must look for
    it. The flag is left up for core to take down, once the node has ended.
    """

    def __init__(self, interrupt: Callable[[str], bool]) -> None:
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._running: dict[int, str] = {}
        self._thread: threading.Thread | None = None
        self._last = 0.0

    def during(self, env: str) -> Watched:
        """Interrupt the environment's call if core's flag goes up while this lasts."""
        return Watched(self, env)

    def enter(self, env: str) -> int:
        """Watch for a call of the environment from now on; `leave` ends that."""
        me = next(self._numbers)   # never used again, so that what was told to one call is not taken for the next
        with self._lock:
            self._running[me] = env
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="comfy-env interrupt watch", daemon=True)
                self._thread.start()
        return me

    def leave(self, me: int) -> None:
        """Watch for a call no more: it is out of reach before its thread goes on."""
        with self._lock:
            self._running.pop(me, None)
            self._last = time.monotonic()

    def _watch(self) -> None:
        told: set[int] = set()
        while True:
            time.sleep(PERIOD)
            with self._lock:
                if not self._running and time.monotonic() - self._last > LINGER:
                    self._thread = None
                    return
                told.intersection_update(self._running)
                if self._running and is_interrupted():
                    told.update(me for me, env in self._running.items() if me not in told and self._interrupt(env))


def is_interrupted() -> bool:
    """Tell whether core's interrupt flag is up."""
    module = core.loaded("comfy.model_management")
    return module is not None and bool(module.processing_interrupted())


def interrupted_error() -> BaseException:
    """Return core's own interrupt exception, with its flag taken down."""
    module = core.module("comfy.model_management")
    module.interrupt_current_processing(False)
    error: BaseException = module.InterruptProcessingException()
    return error


class PromptThread:
    """Runs jobs on the thread on which core executes nodes, for the threads that follow coroutines of nodes."""

    def __init__(self) -> None:
        self._here = threading.local()

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remember, on a thread that follows a coroutine, the event loop that core awaits it on."""
        self._here.loop = loop

    def run(self, job: Callable[[], None], seconds: float) -> bool:
        """Run a job there and wait for its end; False if that thread had no time for it."""
        loop = getattr(self._here, "loop", None)
        if loop is None:
            job()
            return True
        done = threading.Event()

        def there() -> None:
            try:
                job()
            finally:
                done.set()

        loop.call_soon_threadsafe(there)
        return done.wait(seconds)


prompt_thread = PromptThread()


class Epoch:
    """Counts the moments after which nothing remembered of menus may be used: a prompt or an upload arrived."""

    def __init__(self) -> None:
        self.number = 0
