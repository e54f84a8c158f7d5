"""The arena's own frames: what is accepted from the other end, and that nonsense ends the lane by name."""

from __future__ import annotations

import array
import contextlib
import gc
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from comfy_env.worker.wire import segments
from comfy_env.worker.wire.faults import FrameBroken
from comfy_env.worker.wire.frames import Frame, Placed, pack
from comfy_env.worker.wire.inbox import Inbox, Missing
from comfy_env.worker.wire.kinds import Kind
from comfy_env.worker.wire.outbox import Outbox
from comfy_env.worker.wire.sharing import Return, Sharing
from comfy_env.worker.wire.stream import FrameStream

SIZE = 100_000


@contextlib.contextmanager
def lane(private: bool = False, wary: bool = True) -> Iterator[tuple[FrameStream, FrameStream]]:
    """A lane with an arena; the second end looks at what the first one lends."""
    one, other = (FrameStream(sock) for sock in socket.socketpair())
    one.sharing = Sharing(Outbox(share=os.dup), Inbox(private=False, wary=False))
    other.sharing = Sharing(Outbox(), Inbox(private=private, wary=wary))
    try:
        yield one, other
    finally:
        one.close()
        other.close()
        gc.collect()


def sent(one: FrameStream, other: FrameStream, *buffers: bytes) -> list:
    one.send(Frame(11, 1, 1, b"x", [memoryview(bytearray(b)) for b in buffers]))
    return list(other.receive().buffers)


@pytest.mark.parametrize("private", [False, True])
def test_large_buffers_are_looked_at_and_small_ones_follow_in_the_same_order(private):
    contents = [b"a" * SIZE, b"b" * 20_000, b"", b"c" * (1 << 20), b"d" * 30_000]
    with lane(private) as (one, other):
        got = sent(one, other, *contents)
        assert [bytes(b) for b in got] == contents
        assert not any(b.readonly for b in got)
        assert (other.sharing.inbox.live, one.sharing.outbox.copied) == (2, SIZE + (1 << 20))
        del got
        assert other.sharing.inbox.live == 0


def test_a_lease_comes_back_with_the_next_frame_whatever_that_is():
    with lane() as (one, other):
        sent(one, other, b"a" * SIZE)
        assert one.sharing.outbox.lent == 1
        other.send(Frame(Kind.PONG))
        assert one.receive().kind == Kind.PONG
        assert one.sharing.outbox.lent == 0


def test_blocks_are_used_again_last_come_first_served():
    with lane() as (one, other):
        places = [place for place in (one.sharing.outbox.place(memoryview(bytearray(SIZE))) for _ in range(3)) if place]
        one.sharing.outbox.take_back([places[0].lease, places[2].lease])
        again = [one.sharing.outbox.place(memoryview(bytearray(SIZE))) for _ in range(2)]
        assert [place.offset for place in again if place] == [places[2].offset, places[0].offset]


def test_no_two_blocks_share_a_page():
    with lane() as (one, _):
        outbox = one.sharing.outbox
        places = [outbox.place(memoryview(bytearray(size))) for size in (65_536, 65_537, 100_000, 300_000, 65_536, 1 << 20)]
        spans = sorted((p.offset, p.offset + p.size) for p in places if p)
        assert all(end <= start and start % 65_536 == 0 for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def test_a_buffer_larger_than_any_segment_gets_one_of_its_own():
    with lane() as (one, _):
        place = one.sharing.outbox.place(memoryview(bytearray(70 << 20)))
        assert place is not None and place.size == 70 << 20
        assert one.sharing.outbox.announcements[0].size == 128 << 20


def test_a_frame_that_did_not_leave_lends_and_loses_nothing():
    with lane() as (one, other):
        kept = sent(other, one, b"z" * SIZE)
        del kept
        one._send_some = _too_late  # type: ignore[method-assign]
        with pytest.raises(TimeoutError):
            one.send(Frame(11, 1, 1, b"x", [memoryview(bytearray(SIZE))]))
        del one._send_some
        assert one.sharing.outbox.lent == 0
        assert [bytes(b) for b in sent(one, other, b"y" * SIZE)] == [b"y" * SIZE]
        assert other.sharing.outbox.lent == 0


def _too_late(*args):
    raise TimeoutError


def test_threads_may_send_while_another_one_receives():
    with lane() as (one, other):
        def send(letter: bytes) -> None:
            for _ in range(100):
                one.send(Frame(11, 1, 1, b"x", [memoryview(bytearray(letter * SIZE))]))

        threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b")]
        for thread in threads:
            thread.start()
        seen = set()
        for _ in range(200):
            content = bytes(other.receive().buffers[0])
            assert len(set(content)) == 1 and len(content) == SIZE
            seen.add(content[:1])
            other.send(Frame(Kind.PING))
        for thread in threads:
            thread.join(10)
        assert seen == {b"a", b"b"}


# ---------------------------------------------------------------- golden bytes: a change of them is a change of the protocol

def test_a_placed_buffer_is_written_as_the_golden_bytes_say():
    head, payload, buffers = pack(Frame(10, 7, 3, b"p", [memoryview(b"abc"), memoryview(b"xyz")]), [Placed(3, 65536, 9, 65536, 2), None])
    assert (head + payload).hex() == (
        "43456e76010a02000300000007000000000000000100000002000000a0f5f990"
        "03000000000000000000010000000000090000000000000000000100000000000200000000000000"
        "03000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "70"
    )
    assert buffers == [b"xyz"]


def test_a_return_is_written_as_the_golden_bytes_say():
    assert Return([5, 6], [1], []).packed()[32:].hex() == (
        "020000000100000000000000" "0500000000000000" "0600000000000000" "0100000000000000"
    )


# ---------------------------------------------------------------- what a sender must not say

def _segment_frame(number: int, size: int, fd: int) -> bytes:
    facts = os.fstat(fd)
    payload = struct.pack("<QQQQ", number, size, facts.st_dev, facts.st_ino)
    return pack(Frame(Kind.SEGMENT, payload=payload))[0] + payload


def _announce(sock: socket.socket, number: int, size: int, fd: int) -> None:
    aside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    sock.sendmsg([_segment_frame(number, size, fd)], aside)


def _placed(place: Placed) -> bytes:
    head, payload, _ = pack(Frame(11, 1, 1, b"x", [memoryview(b"")]), [place])
    return head + payload


@pytest.fixture
def memory():
    fd = segments.create(1 << 20)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("where", [
    Placed(SIZE, 1 << 20, 1, 0, 1), Placed(SIZE, (1 << 20) - SIZE + 1, 1, 0, 1), Placed(1 << 40, 0, 1, 0, 1),
    Placed(SIZE, 0, 1, 0, 2), Placed(SIZE, (1 << 64) - 1, 1, 0, 1), Placed(0, 0, 1, 0, 1), Placed(SIZE, 0, 1, 5, 1),
])
def test_a_buffer_that_lies_nowhere_ends_the_lane(memory, where):
    with lane() as (one, other):
        _announce(one.sock, 1, 1 << 20, memory)
        one.sock.sendall(_placed(where))
        with pytest.raises(FrameBroken, match="lies nowhere"):
            other.receive()


def test_a_segment_smaller_than_announced_ends_the_lane(memory):
    with lane() as (one, other):
        _announce(one.sock, 1, 2 << 20, memory)
        with pytest.raises(FrameBroken, match="smaller"):
            other.receive()


def test_a_segment_announced_twice_ends_the_lane(memory):
    with lane() as (one, other):
        _announce(one.sock, 1, 1 << 20, memory)
        _announce(one.sock, 1, 1 << 20, memory)
        with pytest.raises(FrameBroken, match="twice"):
            other.receive()


def test_descriptors_that_no_frame_tells_of_end_the_lane_and_are_closed(memory):
    with lane() as (one, other):
        for _ in range(10):
            one.sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory] * 2))])
        with pytest.raises(FrameBroken):
            other.receive()


@pytest.mark.parametrize("payload", [b"", b"\xff" * 12, b"\x01" + b"\0" * 11])
def test_a_return_of_another_shape_ends_the_lane(payload):
    with lane() as (one, other):
        one.send(Frame(Kind.RETURN, payload=payload))
        with pytest.raises(FrameBroken, match="shape"):
            other.receive()


def test_a_lane_without_an_arena_accepts_none_of_its_frames():
    with lane() as (one, other):
        other.sharing = None
        one.send(Frame(Kind.RETURN, payload=Return([], [], []).packed()[32:]))
        with pytest.raises(FrameBroken, match="none"):
            other.receive()


def test_leases_that_were_never_given_are_given_back_without_harm():
    with lane() as (one, other):
        other.sharing.keep(Return([77, 78], [], []))
        other.send(Frame(Kind.PONG))
        assert one.receive().kind == Kind.PONG


def test_a_descriptor_lost_on_its_way_is_told_by_name_and_the_next_one_is_not_taken_for_it(memory):
    lost = segments.create(1 << 20)
    with lane() as (one, other):
        one.sock.sendall(_segment_frame(1, 1 << 20, lost))
        _announce(one.sock, 2, 1 << 20, memory)
        one.sock.sendall(_placed(Placed(SIZE, 0, 1, 0, 1)) + _placed(Placed(SIZE, 0, 2, 0, 2)))
        first, second = other.receive().buffers[0], other.receive().buffers[0]
        assert type(first) is Missing and "too many files" in first.why
        assert second.nbytes == SIZE
        del second
    os.close(lost)


def test_memory_that_could_shrink_is_read_and_never_mapped_by_a_wary_end():
    fd = os.memfd_create("comfy_env", os.MFD_CLOEXEC)
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, b"q" * SIZE, 0)
    with lane() as (one, other):
        _announce(one.sock, 1, 1 << 20, fd)
        one.sock.sendall(_placed(Placed(SIZE, 0, 1, 0, 1)))
        assert bytes(other.receive().buffers[0]) == b"q" * SIZE
        os.ftruncate(fd, 0)
        one.sock.sendall(_placed(Placed(SIZE, 0, 2, 0, 1)))
        with pytest.raises(FrameBroken, match="ended early"):
            other.receive()
    os.close(fd)


def test_an_ordinary_segment_cannot_be_shrunk_by_either_end():
    fd = segments.create(1 << 20)
    assert segments.is_sealed(fd)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    reader = segments.for_readers(fd)
    with pytest.raises(OSError, match="Bad file descriptor|not permitted"):
        os.write(reader, b"x")
    os.close(reader)
    os.close(fd)
