"""A lane between two ends of this process."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from comfy_env.worker.wire.stream import FrameStream


@contextlib.contextmanager
def lane() -> Iterator[tuple[socket.socket, FrameStream]]:
    """Return a raw socket to write into, and the stream that reads it."""
    near, far = socket.socketpair()
    near.settimeout(10)
    far.settimeout(10)
    with near, far:
        yield near, FrameStream(far)
