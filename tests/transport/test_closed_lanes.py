"""A lane that another thread closes while somebody waits on it, or is just about to: the wait ends, whatever got its number."""

import os
import socket
import threading
import time

import pytest

from comfy_env.errors import LaneLost
from comfy_env.transport.channel import SocketLane
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind


@pytest.fixture
def lane():
    ours, theirs = socket.socketpair()
    lane = SocketLane(ours)
    yield lane
    lane.close()
    theirs.close()


@pytest.fixture
def silent():
    """A descriptor that never becomes readable, and one that never becomes writable."""
    read, write = os.pipe()
    full, other = socket.socketpair()
    full.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            full.send(bytes(65536))
    yield read, full.fileno()
    os.close(read)
    os.close(write)
    full.close()
    other.close()


class Number:
    """Closes a lane and gives its number to something silent, just before the first wait."""

    def __init__(self, lane, silent):
        self.lane, self.silent, self.number = lane, silent, lane.fileno()
        self.waits = 0

    def taken(self):
        self.waits += 1
        if self.waits == 1:
            self.lane.close()
            os.dup2(self.silent, self.number)


def test_a_lane_closed_just_before_a_wait_ends_it_although_its_number_belongs_to_another_by_then(lane, silent):
    number = Number(lane, silent[0])
    real = lane._spin.wait
    lane._spin.wait = lambda poll, timeout: (number.taken(), real(poll, timeout))[1]
    try:
        with pytest.raises(LaneLost):
            lane.receive()
    finally:
        os.close(number.number)


def test_a_lane_closed_just_before_a_wait_for_room_ends_that_too(lane, silent):
    number = Number(lane, silent[1])
    real = lane._polling
    lane._polling = lambda events: (number.taken(), real(events))[1]
    try:
        with pytest.raises(LaneLost):
            lane.send(Frame(Kind.CALL, payload=bytes(20_000_000)))
    finally:
        os.close(number.number)


def test_a_deadline_further_off_than_one_wait_is_kept(lane, monkeypatch):
    monkeypatch.setattr("comfy_env.transport.channel.LOOK", 0.01)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        lane.receive(began + 0.2)
    assert time.monotonic() - began >= 0.2
    with pytest.raises(TimeoutError):
        lane.send(Frame(Kind.CALL, payload=bytes(20_000_000)), time.monotonic() + 0.2)
    assert time.monotonic() - began >= 0.4


def test_a_thread_that_waits_without_a_deadline_is_woken_by_the_close(lane):
    threading.Timer(0.05, lane.close).start()
    with pytest.raises(LaneLost):
        lane.receive()
