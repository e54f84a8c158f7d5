"""What a worker inherits to join its host: two socket pairs, the boot pipe and the lifeline, made before it exists."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from comfy_env.errors import BackendError


class SocketEndpoint:
    """Both halves of everything a worker inherits. No descriptor of the host is inheritable by itself.

    ``lifeline_read`` is armed by whoever spawns the worker; `child_started` then closes the worker's half here.
    """

    listener: str | None = None   # nobody else can connect
    inherited = True

    def __init__(self) -> None:
        self.main, self._main_child = socket.socketpair()
        self.side, self._side_child = socket.socketpair()
        self._boot_read, self._boot_write = os.pipe()
        read, self.lifeline_write = os.pipe()
        self.lifeline_read: int | None = read
        self._arrived = False
        self._taken = False
        self.closed = False

    @property
    def child_fds(self) -> tuple[int, ...]:
        return self.main_fd, self.side_fd, self._boot_read, self._lifeline()

    @property
    def boot_fd(self) -> int:
        return self._boot_read

    @property
    def main_fd(self) -> int:
        return self._main_child.fileno()

    @property
    def side_fd(self) -> int:
        return self._side_child.fileno()

    @property
    def lifeline_fd(self) -> int:
        return self._lifeline()

    def _lifeline(self) -> int:
        return -1 if self.lifeline_read is None else self.lifeline_read

    def write_boot(self, document: Mapping[str, Any]) -> None:
        """Put the boot document into the pipe, whole, before the worker exists; raises BackendError if it is too large."""
        data = json.dumps(document).encode()
        os.set_blocking(self._boot_write, False)
        try:
            written = os.write(self._boot_write, data)
        except BlockingIOError:
            written = 0
        _close(self._boot_write)
        self._boot_write = -1
        if written != len(data):
            raise BackendError(f"the boot document of {len(data)} bytes does not fit a pipe", hint="name fewer import roots")

    def child_started(self) -> None:
        """Close the worker's half in the host; idempotent."""
        self._main_child.close()
        self._side_child.close()
        for fd in (self._boot_read, self._boot_write, self._lifeline()):
            _close(fd)
        self._boot_read, self._boot_write, self.lifeline_read = -1, -1, None

    def arrivals(self) -> list[socket.socket]:
        """Return the connections that came since the last time: here both lanes, once."""
        came = [] if self._arrived or self.closed else [self.main, self.side]
        self._arrived = True
        return came

    def listening_fd(self) -> int | None:
        return None

    def take_lanes(self) -> tuple[socket.socket, socket.socket]:
        """Hand over the host's main and side sockets: `close` leaves them alone from now on."""
        self._taken = True
        return self.main, self.side

    def close(self) -> None:
        """Close everything that was not handed over, the lifeline too; idempotent. A `join` that waits ends."""
        self.closed = True
        self.child_started()
        _close(self.lifeline_write)
        self.lifeline_write = -1
        if not self._taken:
            for sock in (self.main, self.side):
                with contextlib.suppress(OSError):  # the worker closed first
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def open_endpoint() -> SocketEndpoint:
    """Return a fresh endpoint."""
    return SocketEndpoint()
