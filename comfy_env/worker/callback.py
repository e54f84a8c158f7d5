"""What code inside a worker may ask of its host while a call runs.

A pack needs none of it; a module that wants to work with and without isolation imports it in a ``try``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Optional

from .calls import Calls
from .interrupts import CallInterrupted
from .loop import Loop
from .memory import Keepers

__all__ = [
    "CallInterrupted", "CallbackFailed", "NoHost", "call_host", "current_node", "generation", "interrupted", "is_called", "register_cache",
    "report_progress",
]


class NoHost(LookupError):
    """No call of a host runs on this thread or, if there is only one worker here, in this process."""


class CallbackFailed(Exception):
    """The host's function raised. ``remote_type`` names the exception's class, ``remote_traceback`` is the host's own."""

    def __init__(self, text: str, remote_type: str, remote_traceback: str = "") -> None:
        super().__init__(text, remote_type)
        self.text = text
        self.remote_type = remote_type
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        name = self.remote_type
        return f"{name[9:] if name.startswith('builtins.') else name}: {self.text}"


class Worker:
    """A worker as the code it runs sees it."""

    def __init__(self, loop: Loop, calls: Calls, keepers: Keepers) -> None:
        self.loop = loop
        self.calls = calls
        self.keepers = keepers
        self.asking = threading.Lock()   # one thread at a time reads the lane for an answer


class _Workers:
    """The workers of this process: one, or several threads of an in-process host."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Worker] = {}

    def enter(self, worker: Worker) -> None:
        self._by_thread[threading.get_ident()] = worker

    def leave(self) -> None:
        self._by_thread.pop(threading.get_ident(), None)

    def find(self) -> Optional[Worker]:
        worker = self._by_thread.get(threading.get_ident())
        if worker is None and len(self._by_thread) == 1:
            worker = next(iter(self._by_thread.values()))
        return worker

    def serves_here(self, worker: Worker) -> bool:
        return self._by_thread.get(threading.get_ident()) is worker

    def running(self) -> tuple[Worker, int]:
        worker = self.find()
        if worker is None or worker.calls.request is None:
            raise NoHost("no call of a host runs here")
        return worker, worker.calls.request


workers = _Workers()


def report_progress(value: float, total: float, node: str = "", preview: Any = None) -> None:
    """Tell the host how far the running call is; raises CallInterrupted if the host asked for its end."""
    worker, request = workers.running()
    message = {"value": value, "total": total, "node": node, "preview": preview}
    _shielded(worker, lambda: worker.loop.tell(request, message))


def call_host(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call one of the functions the host offered for the running call, and return its result.

    Raises CallbackFailed if it raises there. An interrupt that comes meanwhile is raised after the answer.
    """
    worker, request = workers.running()
    message = {"name": name, "args": args, "kwargs": kwargs}
    with worker.asking:
        answer = _shielded(worker, lambda: worker.loop.ask(request, message))
    if "error" in answer:
        error = answer["error"]
        raise CallbackFailed(error.get("text", ""), ".".join(error.get("type", ["", ""])), error.get("traceback", ""))
    return answer.get("value")


def generation() -> int:
    """Return the place of this worker among those of its environment, 0 outside one."""
    worker = workers.find()
    return 0 if worker is None else worker.loop.generation


def is_called() -> bool:
    """Tell whether a call of the host runs now."""
    worker = workers.find()
    return worker is not None and worker.calls.request is not None


def interrupted() -> bool:
    """Tell whether the host asked for the running call's end; False outside a call."""
    worker = workers.find()
    return worker is not None and worker.calls.request is not None and worker.calls.interrupts.wanted


def current_node() -> Optional[dict[str, Any]]:
    """Return which node of which prompt the running call serves, None if none."""
    worker = workers.find()
    return None if worker is None else worker.calls.node


def register_cache(
    size: Callable[[], int], release: Callable[[], Any], single: Optional[Callable[[str, Optional[int]], Any]] = None
) -> None:
    """Let the host see and free memory that the caller keeps: ``size()`` tells its bytes, ``release()`` frees it.

    ``single(name, bytes)`` frees one thing of several, by the name under which the host knows it.
    """
    worker = workers.find()
    if worker is None:
        raise NoHost("no worker runs here")
    worker.keepers.add(size, release, single)


def _shielded(worker: Worker, act: Callable[[], Any]) -> Any:
    """Run lane work of a called function without being interrupted in the middle of a frame.

    The exception only ever strikes the thread that serves calls, so no other thread may arm or disarm it.
    """
    if not workers.serves_here(worker):
        return act()
    interrupts = worker.calls.interrupts
    interrupts.disarm()
    try:
        return act()
    finally:
        interrupts.arm()
