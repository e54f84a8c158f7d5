"""The listening socket and the thread that accepts from it.

The listener is shared with the successor: both have the same open file description, so connections that wait in its
queue are served by whoever accepts next and none is refused in between. It never blocks in either process, and nobody
changes that flag, which is shared too.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable

from comfy_env.errors import ComfyEnvError
from comfy_env.process.waits import readable

log = logging.getLogger(__name__)

BACKLOG = 512
REST = 0.1  # seconds after an accept that failed for want of descriptors or memory
_AGAIN = 0.05
FIRST_INHERITED = 3
ELSEWHERE = "name a free port with --port or COMFY_ENV_ORCH_PORT (0 takes one), an address of this machine with COMFY_ENV_ORCH_HOST"


def bind(host: str, port: int, seconds: float) -> socket.socket:
    """Return a listener of our own, trying for a while where the port is taken; raises ComfyEnvError."""
    until = time.monotonic() + seconds
    while True:
        try:
            return _bound(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise ComfyEnvError(f"{host}:{port} cannot be listened on: {error.strerror}", hint=ELSEWHERE) from error
        time.sleep(_AGAIN)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with contextlib.ExitStack() as undo:
        listener = undo.enter_context(socket.socket(family, kind, protocol))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        undo.pop_all()
    return listener


def inherited(fd: int) -> socket.socket:
    """Return the listener that a predecessor or a supervisor passed on. Its flags stay as they are."""
    os.set_inheritable(fd, False)
    listener = socket.socket(fileno=fd)
    if os.get_blocking(fd):  # a supervisor's: nobody else uses it yet
        listener.setblocking(False)
    return listener


def from_supervisor(listen_fds: str, listen_pid: str, pid: int) -> socket.socket | None:
    """Return the socket a supervisor opened for this very process, None where there is none."""
    if listen_pid != str(pid) or not listen_fds.isdigit() or int(listen_fds) < 1:
        return None
    return inherited(FIRST_INHERITED)


class Acceptor:
    """Accepts on a plain thread and hands each connection to `hand`, which is called on that thread and must not block."""

    def __init__(self, listener: socket.socket, hand: Callable[[socket.socket], None]) -> None:
        self._listener = listener
        self._hand = hand
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Begin to accept; idempotent."""
        if self._thread is None:
            self._wake = os.pipe()
            self._thread = threading.Thread(target=self._run, args=(self._wake[0],), name="comfy-env accept", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Accept nothing more. When it returns, everything that was accepted has been handed over."""
        thread, self._thread = self._thread, None
        if thread is None or self._wake is None:
            return
        os.write(self._wake[1], b"!")
        thread.join()
        for fd in self._wake:
            os.close(fd)
        self._wake = None

    def _run(self, wake: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            while all(key.fd != wake for key, _ in selector.select()):
                self._accept(wake)

    def _accept(self, wake: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError) as nobody:  # taken by another process, or gone by itself
            return log.debug("nobody to accept: %s", nobody)
        except OSError as error:  # out of descriptors or memory, mostly: it waits in the queue, and this thread must not end
            log.warning("a connection waits, it cannot be accepted now: %s", error)
            return _rest(wake)
        connection.setblocking(False)
        self._hand(connection)


def _rest(wake: int) -> None:
    """Wait a moment, or until woken; without a descriptor of its own, for there may be none."""
    readable([wake], REST)
