"""Carries out one generation's effects in order, on a thread that exists only while there is work.

A job that must not wait (a kill, an interrupt) gets a thread of its own: a backend that hangs in one verb never keeps
its worker from being ended, and never stalls another environment. An interpreter that exits may start no thread any more
(CPython 3.12): then the job runs on the thread that brings it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from comfy_env.process.patience import Patience

log = logging.getLogger(__name__)
Job = Callable[[], None]


class Performer:
    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        """Run a job after those already submitted."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is not None:
                return
            thread = self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            _start(thread, self._work)
        except BaseException:   # torn out (Ctrl-C) before the thread ran: whoever comes next must not rely on it
            with self._lock:
                if thread.ident is None:
                    self._thread = None
            raise

    def finish(self, patience: Patience) -> bool:
        """Wait until nothing submitted is left to do, or the patience is over; tell whether it came to that."""
        with self._idle:
            over = lambda: self._thread in (None, threading.current_thread())  # noqa: E731
            return patience.wait(lambda seconds: self._idle.wait_for(over, seconds))

    def urgent(self, job: Job, what: str) -> None:
        """Run a job now, beside whatever runs."""
        _start(threading.Thread(target=_run, args=(job,), name=f"{self._name} {what}", daemon=True), lambda: _run(job))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    self._idle.notify_all()
                    return
                job = self._jobs.popleft()
            _run(job)


def _run(job: Job) -> None:
    try:
        job()
    except BaseException:  # a job answers its own failures; this keeps a defect from ending the thread unseen, and its queue with it
        log.exception("an effect failed")


def _start(thread: threading.Thread, job: Job) -> bool:
    """Start a thread, or run its job here where none may be started; tell whether it was started."""
    try:
        thread.start()
    except RuntimeError as error:
        log.debug("%s runs on %s: %s", thread.name, threading.current_thread().name, error)
        job()
        return False
    return True


def within(seconds: float, job: Callable[[], object], name: str) -> tuple[bool, object, BaseException | None]:
    """Run a job on a thread that is left behind after so many lived seconds; return (finished, result, error)."""
    box: list[tuple[object, BaseException | None]] = []

    def work() -> None:
        try:
            box.append((job(), None))
        except BaseException as error:  # told to the caller below
            box.append((None, error))

    def ended(slice: float) -> bool:
        thread.join(slice)
        return not thread.is_alive()

    thread = threading.Thread(target=work, name=name, daemon=True)
    if _start(thread, work):
        Patience(seconds).wait(ended)
    return (True, *box[0]) if box else (False, None, None)
