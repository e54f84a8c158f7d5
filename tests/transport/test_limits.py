"""Limits counted in slices: what a lane does at the end of one, and at the end of all."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import SimpleNamespace

import pytest

from comfy_env.process.patience import Patience
from comfy_env.transport import devices, limits
from comfy_env.transport.channel import SocketLane
from comfy_env.transport.codec import HostCodec
from comfy_env.transport.session import Session
from comfy_env.values import Lanes
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind

HUGE = Frame(Kind.PING, 1, 1, b"x" * (8 << 20))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def ends():
    mine, theirs = (SocketLane(sock) for sock in socket.socketpair())
    yield mine, theirs
    mine.close()
    theirs.close()


@pytest.fixture
def sending():
    """Send on a thread of its own; what it raised is in the list."""
    threads = []

    def send(lane, limit):
        raised: list = []

        def work():
            try:
                limits.send(lane, HUGE, limit)
            except TimeoutError as error:
                raised.append(error)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return threads[-1], raised

    yield send
    for thread in threads:
        thread.join(20)


def test_a_frame_half_of_which_is_out_is_not_lost_in_a_night(ends, sending):
    mine, theirs = ends
    clock = Clock()
    thread, raised = sending(mine, Patience(20, clock))
    assert select.select([theirs.sock], [], [], 20)[0]
    clock.now += 8 * 3600
    thread.join(1.2)   # the lane looked at its limit once at least
    assert thread.is_alive()
    assert bytes(theirs.receive().payload) == HUGE.payload and not raised


def test_a_frame_that_does_not_leave_in_lived_time_costs_the_lane(ends, sending):
    mine, theirs = ends
    thread, raised = sending(mine, Patience(0.1))
    thread.join(20)
    assert raised and mine.fileno() == -1


WORDS = {"interrupt": lambda session: session.interrupt(1), "goodbye": lambda session: session.goodbye()}


def quiet_session(lane):
    """A conversation on a lane that nobody serves."""
    process = SimpleNamespace(pid=None, exit_handle=lambda: None, exit_status=lambda: None)
    return Session(Lanes(lane, lane, {}), HostCodec("env", 1, {}), process)


def fill(sock):
    """Write until a socket takes no more, and return how much it took."""
    taken = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            taken += sock.send(b"x" * 4096)
    return taken


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_nobody_takes_for_a_night_is_sent_all_the_same(ends, word):
    mine, theirs = ends
    clock, session = Clock(), quiet_session(mine)
    session.patience = lambda seconds: Patience(seconds, clock)
    taken = fill(mine.sock)
    sender = threading.Thread(target=WORDS[word], args=(session,))
    sender.start()
    clock.now += 8 * 3600
    sender.join(1.2)   # longer than it may take by the clock
    waited = sender.is_alive()
    while sender.is_alive() or taken > 0:
        if select.select([theirs.sock], [], [], 0.1)[0]:
            taken -= len(theirs.sock.recv(1 << 16))
    sender.join(20)
    assert waited
    assert taken < 0 or select.select([theirs.sock], [], [], 20)[0], "the word came after what filled the lane"


def test_a_devices_proof_has_the_patience_of_its_session(ends):
    session = quiet_session(ends[0])
    asked = []
    session.patience = lambda seconds: ("lived", seconds)
    session.command = lambda kind, message, limit: asked.append((kind, limit))
    session.devices._ask({"facts": True})
    assert asked == [(Kind.DEVICE, ("lived", devices.PATIENCE))]


class ForeignLane:
    """Another maker's lane: it knows times, and says so often that nothing came."""

    def __init__(self, silent):
        self.silent = silent
        self.sent = []

    def send(self, frame, deadline=None):
        self.sent.append(deadline)

    def receive(self, deadline=None, also=()):
        assert isinstance(deadline, float)
        if self.silent:
            self.silent -= 1
            raise TimeoutError("nothing came")
        return HUGE

    def fileno(self):
        return None

    def close(self):
        pass


def test_another_makers_lane_is_told_times_and_sent_a_frame_once():
    lane, clock = ForeignLane(3), Clock()
    patience = Patience(5, clock)
    limits.send(lane, HUGE, patience)
    assert limits.receive(lane, patience, ()) == HUGE
    assert len(lane.sent) == 1 and isinstance(lane.sent[0], float)


def test_waiting_on_another_makers_lane_ends_when_the_patience_does():
    class Passing(Clock):
        def __call__(self):
            self.now += 0.1
            return self.now

    lane = ForeignLane(1000)
    with pytest.raises(TimeoutError, match="nothing came"):
        limits.receive(lane, Patience(5, Passing()), ())
    assert 900 < lane.silent < 1000
