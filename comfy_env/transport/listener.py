"""The endpoint for a worker that cannot inherit descriptors: a listening socket in a private folder.

Anybody of this user may connect, so whoever does proves the key first (`handshake.join`). The key travels in a file of
mode 0600 that the worker reads and removes: never on a program line, never in the environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comfy_env.transport.endpoint import Descriptors, Lifelined

_PEER = struct.Struct("3i")   # pid, uid, gid


class ListenerEndpoint(Lifelined):
    """What a worker connects to. ``folder`` must be this user's own, of mode 0700; `close` leaves nothing in it."""

    inherited = False
    main_fd: int | None = None
    side_fd: int | None = None
    boot_fd = -1

    def __init__(self, folder: Path) -> None:
        self.boot_file = folder / "boot.json"
        self._path = folder / "lanes"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))
        self._socket.listen(16)
        read, write = os.pipe()
        self._pipes = Descriptors(lifeline_read=read, lifeline_write=write)
        self.closed = False

    @property
    def listener(self) -> str:
        return str(self._path)

    @property
    def child_fds(self) -> tuple[int, ...]:
        read = self.lifeline_read
        return () if read is None else (read,)

    @property
    def lifeline_fd(self) -> int | None:
        """The lifeline is not announced: a worker that inherits nothing cannot have it under this number."""
        return None

    def write_boot(self, document: Mapping[str, Any]) -> None:
        """Put the boot document into the private file."""
        fd = os.open(self.boot_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            json.dump(document, stream)

    def child_started(self) -> None:
        """Close the host's copy of the lifeline's read end; idempotent."""
        self._pipes.close("lifeline_read")

    def listening_fd(self) -> int | None:
        return self._socket.fileno()

    def arrivals(self) -> list[socket.socket]:
        """Return the connections that came since the last time, those of other users left out."""
        came = []
        with contextlib.suppress(BlockingIOError, OSError):   # no more are waiting, or the endpoint was closed
            while True:
                connection, _ = self._socket.accept()
                if _is_mine(connection):
                    came.append(connection)
                else:
                    connection.close()
        return came

    def take_lanes(self) -> None:
        """Both lanes are joined: nobody else may connect from now on."""
        self._stop_listening()

    def close(self) -> None:
        """Stop listening and remove both files; idempotent. A `join` that waits ends."""
        self.closed = True
        self._stop_listening()
        self.child_started()
        self._pipes.close("lifeline_write")
        self.boot_file.unlink(missing_ok=True)

    def _stop_listening(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def _is_mine(connection: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True   # the folder's mode keeps others out
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return uid == os.getuid()
