"""Interrupts: a flag of one call, and an exception in its Python code at the next chance.

The exception is raised only while the called function itself runs (`armed`), never in this package's own code: a lane
that is left in the middle of a frame could not be used any more.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable
from typing import Any, Optional

RETRY = 0.02   # s until an interrupt that came during an import is tried again


class CallInterrupted(BaseException):
    """Raised inside a called function because the host asked for its end. Not an Exception: `except Exception` must not eat it."""


class Interrupts:
    """The interrupt flag of the call that runs now. A call that ended already is never touched."""

    def __init__(self, strike: Callable[[], None], take_back: Callable[[], None]) -> None:
        self._strike = strike
        self._take_back = take_back
        self._lock = threading.Lock()
        self._request: Optional[int] = None
        self._armed = False
        self._early: Optional[int] = None
        self.wanted = False

    def begin(self, request: int) -> None:
        with self._lock:
            self._request, self.wanted, self._armed = request, request == self._early, False

    def end(self) -> None:
        with self._lock:
            self._request, self._armed = None, False

    def arm(self) -> None:
        """Allow the exception from here on; raises it at once if the flag is up."""
        self._armed = True
        self.raise_if_wanted()

    def disarm(self) -> None:
        """Forbid the exception from here on; one that was on its way is taken back."""
        self._armed = False   # before the lock: an exception that comes while the lock is taken would leave it taken
        with self._lock:
            if self.wanted:
                self._take_back()

    def raise_if_wanted(self) -> None:
        if self.wanted:
            raise CallInterrupted("the host asked for the interrupt")

    def interrupt(self, request: int) -> bool:
        """Put up the flag of a call, from any thread; False if another call or none runs.

        The side lane may be faster than the main lane: the flag waits for a call that has not begun. Requests are never
        used twice, so one that has ended is not touched by it.
        """
        with self._lock:
            if self._request != request:
                self._early = max(request, self._early or 0)   # one that is late must not hide one that is early
                return False
            self.wanted = True
            if self._armed:
                self._strike()
            return True


class SignalInterrupts(Interrupts):
    """For a call on the main thread: a signal to that thread, which also ends a sleep or a wait."""

    def __init__(self) -> None:
        number = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
        thread = threading.main_thread().ident or 0
        super().__init__(strike=lambda: signal.pthread_kill(thread, number), take_back=_nothing)
        signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        if not self._armed:   # it runs on the thread that arms and disarms
            return
        if self.wanted and is_importing(frame):   # a module that is cut off in the middle cannot be used by any later call
            again = threading.Timer(RETRY, self._strike)
            again.daemon = True
            again.start()
            return
        self.raise_if_wanted()


def is_importing(frame: Any) -> bool:
    """Tell whether a module is being imported at a frame or above it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False


class ThreadInterrupts(Interrupts):
    """For a call on some other thread, the one that makes this object: an exception set from outside."""

    def __init__(self) -> None:
        thread = threading.get_ident()
        super().__init__(strike=lambda: _set_exception(thread, CallInterrupted), take_back=lambda: _set_exception(thread, None))


def _nothing() -> None:
    """A signal that comes late finds nothing armed."""


def _set_exception(thread: int, error: Any) -> None:
    ctypes = importlib.import_module("ctypes")
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error) if error else None)
