"""Writes the golden frames anew: ``python -m tests.wire.make_golden``. A change of them is a change of the protocol."""

from __future__ import annotations

from pathlib import Path

from comfy_env.worker.wire.frames import Frame, pack
from comfy_env.worker.wire.kinds import Kind

FOLDER = Path(__file__).parent / "golden"

FRAMES = {
    "empty_ping": Frame(Kind.PING, 7, 3),
    "challenge": Frame(Kind.CHALLENGE, 0, 0, bytes(range(32))),
    "payload": Frame(Kind.CALL, 2**63, 2**32 - 1, b"\x80\x05N."),
    "buffers": Frame(Kind.REPLY, 12, 1, b"\x80\x05\x97.", [memoryview(b"abc"), memoryview(b""), memoryview(b"\x00\xff")]),
}


def wire_bytes(frame: Frame) -> bytes:
    head, payload, buffers = pack(frame)
    return b"".join([head, payload, *buffers])


if __name__ == "__main__":
    for name, frame in FRAMES.items():
        (FOLDER / f"{name}.bin").write_bytes(wire_bytes(frame))
