"""A worker that ends in mid-call is noticed at once, with its real status, however it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from comfy_env.errors import DecodeRefused, FrameDamaged, LaneLost
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind
from tests.transport.workers import Started, joined, until

WAYS = {"segfault": "SIGSEGV", "abort": "SIGABRT", "kill": "SIGKILL", "exit": "status 0"}


@pytest.mark.row("F8")
@pytest.mark.parametrize("how", WAYS)
def test_a_worker_that_ends_in_mid_call_loses_the_lane_promptly_with_its_status(how):
    with joined() as worker:
        with pytest.raises(LaneLost) as raised:
            worker.call("wire_pack:die", how)
        noticed = time.monotonic()
        assert WAYS[how] in (raised.value.status or str(until(worker.process.exit_status, 5)))
        assert time.monotonic() - noticed < 5
        assert (raised.value.env, raised.value.generation, raised.value.pid) == ("wire", 1, worker.process.pid)


def test_an_end_while_the_result_is_written_is_noticed_too():
    with joined() as worker:
        with pytest.raises(LaneLost):
            worker.call("wire_pack:die_in_result")


@pytest.mark.row("F9")
@pytest.mark.parametrize("percent", [1, 50, 99])
def test_an_end_in_the_middle_of_a_large_reply_is_noticed(percent):
    size = 20_000_000

    def die_while_writing():
        import os

        from comfy_env.worker.callback import workers
        from comfy_env.worker.wire.frames import Frame, pack

        worker = workers.find()
        head, payload, buffers = pack(Frame(11, worker.calls.request, 1, b"N.", [memoryview(bytes(size))]))
        data = head + payload + buffers[0]
        worker.loop._stream.sock.sendall(data[:len(data) * percent // 100])
        os._exit(4)

    with joined() as worker:
        with pytest.raises(LaneLost):
            worker.call(die_while_writing)
        assert until(worker.process.exit_status).code == 4


def test_an_end_is_noticed_although_a_forked_child_holds_on(monkeypatch):
    with joined() as worker:
        begun = time.monotonic()
        with pytest.raises(LaneLost):
            worker.call("wire_pack:fork_and_hold", 30)
        assert time.monotonic() - begun < 10
        os.killpg(worker.process.pid, signal.SIGKILL)


@contextmanager
def a_call_that_loses_its_lane(worker: Started, function: str, argument: object) -> Iterator[None]:
    """Have a thread call, and go on once its call runs; it must end by `LaneLost` soon after this does."""
    lost: list[LaneLost] = []

    def call() -> None:
        try:
            worker.call(f"wire_pack:{function}", argument)
        except LaneLost as error:
            lost.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    until(lambda: worker.session._running is not None)
    yield
    thread.join(10)
    assert lost


def test_a_worker_killed_from_outside_is_noticed_by_a_thread_that_waits():
    with joined() as worker:
        with a_call_that_loses_its_lane(worker, "sleep", 60):
            worker.process.popen.send_signal(signal.SIGKILL)
            killed = time.monotonic()
        assert time.monotonic() - killed < 5


@pytest.mark.row("F8")
@pytest.mark.parametrize("ask", ["answer", "command"])
def test_a_write_to_a_worker_that_died_fails_by_name_and_never_waits_for_itself(ask):
    with joined() as worker:
        def end_the_worker():
            worker.process.popen.send_signal(signal.SIGKILL)
            until(worker.process.exit_status)

        with pytest.raises(LaneLost):
            if ask == "answer":
                worker.call("wire_pack:ask", "end", callbacks={"end": end_the_worker})
            else:
                end_the_worker()
                worker.session.command(Kind.PING, {}, time.monotonic() + 5)


def test_after_the_end_everything_fails_by_name_at_once():
    with joined() as worker:
        with pytest.raises(LaneLost):
            worker.call("wire_pack:die", "exit")
        for ask in (lambda: worker.call("wire_pack:echo", 1), lambda: worker.session.command(Kind.PING, {})):
            with pytest.raises(LaneLost):
                ask()
        worker.session.goodbye()


def test_a_large_argument_to_a_worker_that_was_killed_does_not_hang():
    with joined() as worker:
        worker.process.popen.send_signal(signal.SIGSTOP)
        with a_call_that_loses_its_lane(worker, "echo", bytes(50_000_000)):
            worker.process.popen.send_signal(signal.SIGKILL)


def test_closing_the_session_wakes_a_thread_that_waits():
    with joined() as worker:
        with a_call_that_loses_its_lane(worker, "sleep", 60):
            worker.session.close()


def test_a_worker_ends_by_itself_on_goodbye_and_when_its_host_is_gone():
    with joined() as worker:
        worker.session.goodbye()
        assert until(worker.process.exit_status).code == 0
    with joined() as worker:
        worker.lanes.main.close()
        assert until(worker.process.exit_status).code == 1


@pytest.mark.row("F16")
def test_a_late_reply_never_answers_the_next_call():
    with joined() as worker:
        with pytest.raises(TimeoutError):
            worker.call("wire_pack:sleep", 0.3, deadline=time.monotonic() + 0.05)
        assert worker.value("wire_pack:echo", "mine") == "mine"
        assert worker.session.late == 1


@pytest.mark.row("X2")
def test_garbage_instead_of_a_frame_loses_the_lane_by_name():
    with joined() as worker:

        def scribble():
            from comfy_env.worker.callback import workers

            workers.find().loop._stream.sock.sendall(b"garbage" * 20)

        with pytest.raises(FrameDamaged, match="starts with"):
            worker.call(scribble)


@pytest.mark.row("X3")
def test_a_message_the_host_does_not_accept_fails_one_call_and_not_the_lane():
    frame = Frame(Kind.REPLY, 0, 1, b"cposix\nsystem\n(S'true'\ntR.")
    with joined() as worker:
        with pytest.raises(DecodeRefused, match="posix.system"):
            worker.call(_lying(tuple(frame)))
        assert worker.value("wire_pack:echo", 1) == 1
        assert worker.session.late == 1


def _lying(fields):
    def lie():
        from comfy_env.worker.callback import workers
        from comfy_env.worker.wire.frames import Frame as WorkerFrame

        worker = workers.find()
        worker.loop._stream.send(WorkerFrame(*fields)._replace(request=worker.calls.request))

    return lie


def test_a_lost_lane_keeps_none_of_the_frames_in_which_it_was_lost():
    """They hold what was on its way: buffers, descriptors of shared memory."""
    with joined() as worker:
        worker.process.popen.send_signal(signal.SIGKILL)
        until(worker.process.exit_status)
        with pytest.raises(LaneLost):
            worker.call("wire_pack:echo", bytes(300_000))
        lost = worker.session._mail.lost
        assert isinstance(lost, LaneLost) and lost.__traceback__ is None and lost.__cause__ is None
