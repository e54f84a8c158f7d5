"""A lane that heeds a crash pipe: a crash ends every wait, whatever else is written into the pipe ends none."""

import os
import socket
import threading
import time

import pytest

from comfy_env.errors import LaneLost
from comfy_env.transport.channel import SocketLane
from comfy_env.transport.endpoint import open_endpoint
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind


class Pipe:
    """A crash pipe that tells a crash when it reads a "!", and is over when it reads a "."."""

    def __init__(self):
        self._read, self.write = os.pipe()
        self._fd = self._read
        self.looks = 0

    def fileno(self):
        return self._fd

    def look(self):
        self.looks += 1
        said = os.read(self._read, 100)
        if b"." in said:
            self._fd = -1
        return "crashed" if b"!" in said else None


@pytest.fixture
def pipe():
    pipe = Pipe()
    yield pipe
    os.close(pipe._read)
    os.close(pipe.write)


@pytest.fixture
def ends(pipe):
    ours, theirs = socket.socketpair()
    lane, other = SocketLane(ours), SocketLane(theirs)
    lane.heed(pipe)
    yield lane, other
    lane.close()
    other.close()


def test_a_crash_wakes_a_thread_that_waits_for_a_reply(ends, pipe):
    lane, _ = ends
    threading.Timer(0.05, os.write, (pipe.write, b"!")).start()
    with pytest.raises(LaneLost, match="ended"):
        lane.receive(time.monotonic() + 20)


def test_a_crash_wakes_a_thread_that_waits_for_room(ends, pipe):
    lane, _ = ends
    threading.Timer(0.05, os.write, (pipe.write, b"!")).start()
    with pytest.raises(LaneLost):
        lane.send(Frame(Kind.CALL, payload=bytes(20_000_000)), time.monotonic() + 20)


@pytest.mark.parametrize("words", [b"hello", b"."], ids=["words", "end"])
def test_what_is_no_crash_ends_no_wait_and_is_looked_at_once(ends, pipe, words):
    lane, other = ends
    os.write(pipe.write, words)
    threading.Timer(0.1, other.send, (Frame(Kind.REPLY, 7),)).start()
    assert lane.receive(time.monotonic() + 20).request == 7
    assert pipe.looks == 1


def test_a_pipe_that_is_over_is_polled_no_more(ends, pipe):
    lane, other = ends
    os.write(pipe.write, b".")
    with pytest.raises(TimeoutError):
        lane.receive(time.monotonic() + 0.05)
    os.write(pipe.write, b"!")
    with pytest.raises(TimeoutError):
        lane.receive(time.monotonic() + 0.05)
    assert pipe.looks == 1


def test_a_reply_that_is_there_is_read_before_any_crash(ends, pipe):
    lane, other = ends
    os.write(pipe.write, b"!")
    other.send(Frame(Kind.REPLY, 7))
    assert lane.receive(time.monotonic() + 20).request == 7


def test_an_endpoint_closes_both_ends_of_its_crash_pipe_but_for_one_that_was_taken():
    endpoint = open_endpoint()
    assert endpoint.crash_fd in endpoint.child_fds
    taken = endpoint.take_crashes()
    assert endpoint.take_crashes() is None and not os.get_blocking(taken) and not os.get_inheritable(taken)
    endpoint.child_started()
    assert endpoint.crash_fd is None and os.read(taken, 1) == b"", "nobody else holds the end a worker writes into"
    endpoint.close()
    os.close(taken)
    before = len(os.listdir("/proc/self/fd"))
    open_endpoint().close()
    assert len(os.listdir("/proc/self/fd")) == before
