"""Frames: what is written, what is refused, and that nothing is allocated for what is refused."""

from __future__ import annotations

import random
import resource
import struct
import threading
import zlib

import pytest

from comfy_env.worker.wire import blocks
from comfy_env.worker.wire.faults import FrameBroken, LaneEnd
from comfy_env.worker.wire.frames import BUFFER_LIMIT, COUNT_LIMIT, HEAD, MAGIC, PAYLOAD_LIMIT, Frame, pack
from comfy_env.worker.wire.stream import FrameStream
from tests.wire.make_golden import FOLDER, FRAMES, wire_bytes
from tests.wire.pipes import lane


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_written_as_the_golden_bytes_say(name):
    assert wire_bytes(FRAMES[name]) == (FOLDER / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("name", FRAMES)
def test_golden_bytes_are_read_as_the_frame_they_were(name):
    with lane() as (raw, stream):
        raw.sendall((FOLDER / f"{name}.bin").read_bytes())
        frame = stream.receive()
    expected = FRAMES[name]
    assert (frame.kind, frame.request, frame.generation, bytes(frame.payload)) == (*expected[:3], expected.payload)
    assert [bytes(b) for b in frame.buffers] == [bytes(b) for b in expected.buffers]


@pytest.mark.parametrize("step", [1, 7, 31, 33, 40])
def test_a_frame_that_comes_in_pieces_is_whole(step):
    data = wire_bytes(FRAMES["buffers"]) + wire_bytes(FRAMES["payload"])
    with lane() as (raw, stream):
        writer = threading.Thread(target=lambda: [raw.sendall(data[i:i + step]) for i in range(0, len(data), step)])
        writer.start()
        assert [bytes(b) for b in stream.receive().buffers] == [b"abc", b"", b"\x00\xff"]
        assert stream.receive().payload == b"\x80\x05N."
        writer.join(10)


@pytest.mark.parametrize("sizes", [[1], [70_000], [300_000, 5, 0, 1_000_000], [0, 0], [16_384] * 20])
def test_buffers_of_any_size_arrive_in_order_and_writable(sizes):
    contents = [random.Random(size).randbytes(size) for size in sizes]
    with lane() as (raw, stream):
        writer = threading.Thread(target=FrameStream(raw).send, args=(Frame(11, 5, 1, b"p" * 99_000, [memoryview(c) for c in contents]),))
        writer.start()
        frame = stream.receive()
        writer.join(10)
    assert [bytes(b) for b in frame.buffers] == contents
    assert not any(b.readonly for b in frame.buffers)
    assert bytes(frame.payload) == b"p" * 99_000


def test_a_payload_over_the_limit_travels_as_a_buffer_and_arrives_as_the_payload(monkeypatch):
    monkeypatch.setattr("comfy_env.worker.wire.frames.PAYLOAD_LIMIT", 1000)
    with lane() as (raw, stream):
        FrameStream(raw).send(Frame(11, 5, 1, b"x" * 5000, [memoryview(b"tail")]))
        frame = stream.receive()
    assert bytes(frame.payload) == b"x" * 5000
    assert [bytes(b) for b in frame.buffers] == [b"tail"]


# ---------------------------------------------------------------- refusals

def _head(magic=MAGIC, version=1, kind=10, flags=0, payload=0, count=0, crc=None) -> bytes:
    head = struct.pack("<4sBBHIQII", magic, version, kind, flags, 1, 1, payload, count)
    return head + struct.pack("<I", zlib.crc32(head) if crc is None else crc)


@pytest.mark.row("X2")
@pytest.mark.parametrize(("head", "why"), [
    (_head(magic=b"GET "), "starts with"),
    (_head(version=2), "version 2"),
    (_head(flags=0x8000), "unknown flags"),
    (_head(payload=PAYLOAD_LIMIT + 1), "payload of"),
    (_head(payload=2**31), "payload of"),
    (_head(payload=2**32 - 1), "payload of 4294967295"),
    (_head(payload=2**32 - 2), "payload of 4294967294"),
    (_head(count=COUNT_LIMIT + 1), "buffers"),
    (_head(count=2**32 - 1), "buffers"),
    (_head(flags=1), "has none"),
    (_head(crc=1), "checksum"),
])
def test_a_damaged_header_is_refused_by_what_is_wrong(head, why):
    with lane() as (raw, stream):
        raw.sendall(head)
        with pytest.raises(FrameBroken, match=why):
            stream.receive()


@pytest.mark.row("X2")
@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**64 - 2, BUFFER_LIMIT + 1])
def test_a_buffer_length_past_the_limit_is_refused(length):
    table = struct.pack("<Q", length)
    head = struct.pack("<4sBBHIQII", MAGIC, 1, 10, 0, 1, 1, 0, 1)
    with lane() as (raw, stream):
        raw.sendall(head + struct.pack("<I", zlib.crc32(table, zlib.crc32(head))) + table)
        with pytest.raises(FrameBroken, match="claims a buffer"):
            stream.receive()


@pytest.mark.row("X2")
def test_nothing_is_allocated_for_a_table_whose_checksum_is_wrong(monkeypatch):
    asked = []
    monkeypatch.setattr(blocks, "allocate", asked.append)
    data = bytearray(wire_bytes(Frame(11, 1, 1, b"", [memoryview(b"x" * 100)])))
    data[HEAD.size + 5] ^= 0x40   # a length of terabytes
    with lane() as (raw, stream):
        raw.sendall(data)
        with pytest.raises(FrameBroken, match="checksum"):
            stream.receive()
    assert asked == []


@pytest.mark.row("X2")
def test_memory_that_cannot_be_had_is_a_named_refusal():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    table = struct.pack("<Q", BUFFER_LIMIT)
    head = struct.pack("<4sBBHIQII", MAGIC, 1, 10, 0, 1, 1, 0, 1)
    with lane() as (raw, stream):
        raw.sendall(head + struct.pack("<I", zlib.crc32(table, zlib.crc32(head))) + table)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 39, hard))
        try:
            with pytest.raises(FrameBroken, match="no memory"):
                stream.receive()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.row("X2")
@pytest.mark.parametrize("cut", [1, 31, 32, 35, 57, 60])
def test_a_peer_that_ends_in_mid_frame_is_a_lane_end(cut):
    data = wire_bytes(FRAMES["buffers"])
    with lane() as (raw, stream):
        raw.sendall(data[:cut])
        raw.close()
        with pytest.raises(LaneEnd):
            stream.receive()


def test_before_the_proof_small_frames_only_are_listened_to():
    with lane() as (raw, stream):
        stream.payload_limit = 8192
        raw.sendall(_head(payload=8193))
        with pytest.raises(FrameBroken, match="limit is 8192"):
            stream.receive()
    with lane() as (raw, stream):
        stream.payload_limit = 8192
        raw.sendall(_head(count=1))
        with pytest.raises(FrameBroken, match="limit is 0"):
            stream.receive()


@pytest.mark.row("X2")
def test_every_changed_bit_of_head_table_and_payload_is_noticed():
    data = wire_bytes(FRAMES["buffers"])
    summed = len(data) - 5
    for bit in range(summed * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with lane() as (raw, stream):
            raw.sendall(damaged)
            raw.close()
            with pytest.raises((FrameBroken, LaneEnd)):
                stream.receive()


@pytest.mark.row("X2")
def test_random_bytes_never_hang_crash_or_pass():
    rng = random.Random(20)
    outcomes = set()
    for _ in range(1500):
        data = bytearray(rng.randbytes(rng.randrange(0, 200)))
        if rng.random() < 0.7:
            data[:6] = pack(Frame(rng.randrange(256)))[0][:6]
        with lane() as (raw, stream):
            raw.sendall(data)
            raw.close()
            with pytest.raises((FrameBroken, LaneEnd)) as raised:
                stream.receive()
            outcomes.add(raised.type)
    assert outcomes == {FrameBroken, LaneEnd}


def test_half_a_frame_closes_the_lane_so_that_nothing_follows_it():
    class Interrupted(FrameStream):
        def _send_some(self, parts, deadline):
            if self.calls:
                raise KeyboardInterrupt
            self.calls += 1
            return self.sock.send(parts[0][:10])

        calls = 0

    with lane() as (raw, stream):
        broken = Interrupted(raw)
        with pytest.raises(KeyboardInterrupt):
            broken.send(Frame(10, 1, 1, b"payload", [memoryview(b"buffer")]))
        with pytest.raises(LaneEnd):
            stream.receive()


def test_frames_of_many_threads_are_never_mixed():
    near_sizes = [100, 20_000, 70_000]
    with lane() as (raw, stream):
        writer = FrameStream(raw)

        def write(number: int) -> None:
            for size in near_sizes * 4:
                writer.send(Frame(11, number, 1, bytes([number]) * size, [memoryview(bytes([number]) * size)]))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for _ in range(len(threads) * len(near_sizes) * 4):
            frame = stream.receive()
            assert set(bytes(frame.payload)) == set(bytes(frame.buffers[0])) == {frame.request}
        for thread in threads:
            thread.join(10)
