"""What a worker inherits to join its host: two socket pairs, the boot pipe, the lifeline and the crash pipe, made before it exists."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from comfy_env.errors import BackendError


class Descriptors:
    """Named descriptors of which each is closed once, whichever threads ask for it."""

    def __init__(self, **descriptors: int) -> None:
        self._open = descriptors

    def get(self, name: str) -> int | None:
        return self._open.get(name)

    def take(self, name: str) -> int | None:
        """Hand a descriptor over to who asks first: it is closed by whoever got it."""
        return self._open.pop(name, None)

    def close(self, *names: str) -> None:
        """Close these if they are still open; idempotent. Taking one out is atomic: a number closed twice could be another's."""
        for name in names:
            fd = self._open.pop(name, None)
            if fd is not None:
                os.close(fd)


class Lifelined:
    """An endpoint whose descriptors are in ``_pipes``, the lifeline's two ends among them."""

    _pipes: Descriptors

    @property
    def lifeline_read(self) -> int | None:
        return self._pipes.get("lifeline_read")

    @property
    def lifeline_write(self) -> int:
        fd = self._pipes.get("lifeline_write")
        return -1 if fd is None else fd


def _pair(undo: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        undo.callback(end.close)
    return pair


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    pipe = os.pipe()
    for end in pipe:
        undo.callback(os.close, end)
    return pipe


class SocketEndpoint(Lifelined):
    """Both halves of everything a worker inherits. No descriptor of the host is inheritable by itself.

    ``lifeline_read`` is armed by whoever spawns the worker; `child_started` then closes the worker's half here.
    """

    listener: str | None = None   # nobody else can connect
    inherited = True

    def __init__(self) -> None:
        with contextlib.ExitStack() as undo:
            self.main, self._main_child = _pair(undo)
            self.side, self._side_child = _pair(undo)
            boot_read, boot_write = _pipe(undo)
            lifeline_read, lifeline_write = _pipe(undo)
            crash_read, crash_write = _pipe(undo)
            os.set_blocking(crash_read, False)
            undo.pop_all()
        self._pipes = Descriptors(
            boot_read=boot_read, boot_write=boot_write, lifeline_read=lifeline_read, lifeline_write=lifeline_write,
            crash_read=crash_read, crash_write=crash_write,
        )
        self._arrived = False
        self._taken = False
        self.closed = False

    @property
    def child_fds(self) -> tuple[int, ...]:
        pipes = (self._pipes.get("boot_read"), self._pipes.get("lifeline_read"), self._pipes.get("crash_write"))
        return self.main_fd, self.side_fd, *(fd for fd in pipes if fd is not None)

    @property
    def boot_fd(self) -> int:
        fd = self._pipes.get("boot_read")
        return -1 if fd is None else fd

    @property
    def main_fd(self) -> int:
        return self._main_child.fileno()

    @property
    def side_fd(self) -> int:
        return self._side_child.fileno()

    @property
    def lifeline_fd(self) -> int | None:
        return self.lifeline_read

    @property
    def crash_fd(self) -> int | None:
        """Where the worker's faulthandler is to write."""
        return self._pipes.get("crash_write")

    def take_crashes(self) -> int | None:
        """Hand over the end that a crash is read from; it never blocks. None once it was, or after `close`."""
        return self._pipes.take("crash_read")

    def write_boot(self, document: Mapping[str, Any]) -> None:
        """Put the boot document into the pipe, whole, before the worker exists; raises BackendError if it is too large."""
        data = json.dumps(document).encode()
        pipe = self._pipes.get("boot_write")
        if pipe is None:
            raise BackendError("the boot document is written already, or the endpoint is closed")
        os.set_blocking(pipe, False)
        written = 0
        with contextlib.suppress(BlockingIOError):   # told below
            written = os.write(pipe, data)
        self._pipes.close("boot_write")
        if written != len(data):
            raise BackendError(f"the boot document of {len(data)} bytes does not fit a pipe", hint="name fewer import roots")

    def child_started(self) -> None:
        """Close the worker's half in the host; idempotent."""
        self._main_child.close()
        self._side_child.close()
        self._pipes.close("boot_read", "boot_write", "lifeline_read", "crash_write")

    def arrivals(self) -> list[socket.socket]:
        """Return the connections that came since the last time: here both lanes, once."""
        came = [] if self._arrived or self.closed else [self.main, self.side]
        self._arrived = True
        return came

    def listening_fd(self) -> int | None:
        return None

    def take_lanes(self) -> tuple[socket.socket, socket.socket]:
        """Hand over the host's main and side sockets: they are closed by who got them, or when nobody has them any more."""
        taken = self.main, self.side
        self._taken = True
        del self.main, self.side
        return taken

    def close(self) -> None:
        """Close everything that was not handed over, the lifeline too; idempotent. A `join` that waits ends."""
        self.closed = True
        self.child_started()
        self._pipes.close("lifeline_write", "crash_read")
        if not self._taken:
            for sock in (self.main, self.side):
                with contextlib.suppress(OSError):  # the worker closed first
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()


def open_endpoint() -> SocketEndpoint:
    """Return a fresh endpoint."""
    return SocketEndpoint()
