"""What a host and its zygote say to each other: JSON of a told length, and descriptors beside its first byte."""

from __future__ import annotations

import json
import socket
from typing import Any

from .wire.faults import LaneEnd

_MOST = 32   # descriptors of one message


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    channel.sendall(len(data).to_bytes(4, "big") + data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors; raises LaneEnd when the host is gone."""
    head, descriptors, _, _ = socket.recv_fds(channel, 4, _MOST, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    head = _whole(channel, head, 4)
    return json.loads(_whole(channel, b"", int.from_bytes(head, "big"))), descriptors


def _whole(channel: socket.socket, data: bytes, size: int) -> bytes:
    while len(data) < size:
        more = channel.recv(size - len(data))
        if not more:
            raise LaneEnd("the host is gone")
        data += more
    return data
