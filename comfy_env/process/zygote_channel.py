"""The channel to a zygote: what it inherits of it, and whole messages, which may carry descriptors."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence

from comfy_env.process.patience import Patience
from comfy_env.process.waits import readable

_SIZE = 4   # bytes before a message that say how long it is


class Channel:
    """The host's end, and the `Endpoint` of the zygote's launch: the other end, and a lifeline."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as undo:
            self._ours, self._theirs = socket.socketpair()
            undo.callback(self._ours.close)
            undo.callback(self._theirs.close)
            self.lifeline_read: int | None
            self.lifeline_read, self.lifeline_write = os.pipe()
            undo.pop_all()
        self.boot_fd = self._theirs.fileno()
        self.child_fds = (self.boot_fd, self.lifeline_read)
        self._open = [self.lifeline_write]
        self._patience: Patience | None = None

    def child_started(self) -> None:
        self._theirs.close()
        read, self.lifeline_read = self.lifeline_read, None
        if read is not None:
            os.close(read)

    def close(self) -> None:
        """Close everything; idempotent."""
        self.child_started()
        self._ours.close()
        while self._open:
            os.close(self._open.pop())

    def fileno(self) -> int:
        return self._ours.fileno()

    def limit(self, seconds: float) -> None:
        """Let what is told and heard from now on wait so long at the most, what is heard in lived time; TimeoutError then."""
        self._patience = Patience(seconds)
        self._ours.settimeout(seconds)

    def tell(self, message: dict, descriptors: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode()
        socket.send_fds(self._ours, [len(data).to_bytes(_SIZE, "big")], list(descriptors))
        self._ours.sendall(data)

    def heard(self) -> dict:
        """Wait for a message; raises OSError where the channel ends or the limit is over, ValueError for what is none."""
        size = int.from_bytes(self._bytes(_SIZE), "big")
        message = json.loads(self._bytes(size))
        if not isinstance(message, dict):
            raise ValueError("its answer is no object")
        return message

    def _bytes(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._await_more()
            more = self._ours.recv(size - len(data))
            if not more:
                raise ConnectionResetError("its channel ended")
            data += more
        return data

    def _await_more(self) -> None:
        patience = self._patience
        if patience is not None and not patience.wait(lambda seconds: readable([self.fileno()], seconds)):
            raise TimeoutError("it said nothing in time")
