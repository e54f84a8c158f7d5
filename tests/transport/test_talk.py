"""What goes on while a call runs: progress, callbacks, commands from other threads, interrupts, the side lane."""

from __future__ import annotations

import enum
import threading
import time

import pytest

from comfy_env.errors import DecodeRefused, LaneBusy
from comfy_env.transport import canary, commands
from comfy_env.values import Progress, Released, Want
from comfy_env.worker.wire.kinds import Kind
from tests.transport.workers import Started, joined, until


@pytest.fixture(scope="module")
def worker():
    with joined() as started:
        canary.send(started.session, canary.make(1))   # the arena is there from now on
        yield started


class Unknown(enum.IntEnum):
    FUTURE = 99


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


# ---------------------------------------------------------------- progress and callbacks

def test_progress_comes_in_order_and_each_is_a_sign_of_life(worker):
    seen, alive = [], []
    assert worker.value("wire_pack:progress", 3, "preview", on_progress=seen.append, alive=lambda: alive.append(1)) == "done"
    assert seen == [Progress(i, 3, "node", "preview") for i in (1, 2, 3)]
    assert len(alive) == 3


def test_progress_of_another_thread_of_the_worker_comes_too(worker):
    seen: list = []
    assert worker.value("wire_pack:progress_of_a_thread", 5, on_progress=seen.append) == "done"
    assert len(seen) == 5


def test_what_a_progress_hook_raises_stops_the_call_and_is_raised(worker):
    class Stop(Exception):
        """A host's own way to stop."""

    def stop(progress):
        raise Stop("now")

    with pytest.raises(Stop, match="now"):
        worker.call("wire_pack:progress_until_stopped", 30, on_progress=stop)
    assert worker.value("wire_pack:echo", 1) == 1


def test_a_callback_runs_on_the_asking_thread_and_its_result_returns(worker):
    threads = []

    def add(a, b=0):
        threads.append(threading.get_ident())
        return {"sum": a + b}

    answer = worker.value("wire_pack:ask", "add", 1, kwargs={"b": 2}, callbacks={"add": add})
    assert answer == {"sum": 3}
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize(("function", "told"), [
    (lambda: 1 / 0, ["builtins.ZeroDivisionError", "division by zero"]),
    (lambda: memoryview(b""), ["comfy_env.errors.EncodeRefused", "value is of type builtins.memoryview"]),
])
def test_a_callback_that_fails_raises_in_the_worker_and_the_call_goes_on(worker, function, told):
    type_name, text = worker.value("wire_pack:ask_and_catch", "f", callbacks={"f": function})
    assert type_name == told[0]
    assert text.startswith(told[1])


def test_a_callback_that_fails_keeps_its_type_its_text_and_the_hosts_traceback(worker):
    def stumbles():
        raise KeyError("the host's own words")

    answer = worker.call("wire_pack:ask", "f", callbacks={"f": stumbles})
    assert answer.error.text == "KeyError: \"the host's own words\""
    name, trace = worker.value("wire_pack:ask_and_keep_the_trace", "f", callbacks={"f": stumbles})
    assert name == "builtins.KeyError"
    assert "in stumbles" in trace and "the host's own words" in trace


def test_a_callback_whose_error_cannot_be_written_costs_no_worker(worker):
    class Mute(Exception):
        def __str__(self):
            raise ZeroDivisionError

    def stumbles():
        raise Mute

    name, text = worker.value("wire_pack:ask_and_catch", "f", callbacks={"f": stumbles})
    assert name.endswith("Mute") and "cannot be had" in text


def test_a_callback_nobody_offers_raises_in_the_worker_by_name(worker):
    answer = worker.call("wire_pack:ask", "nobody")
    assert answer.error.type_name.endswith("CallbackFailed")
    assert "offers no callback 'nobody'" in answer.error.text


def test_outside_a_call_there_is_no_host_to_ask():
    from comfy_env.worker import callback

    with pytest.raises(callback.NoHost):
        callback.call_host("x")
    assert callback.interrupted() is False
    assert callback.current_node() is None


# ---------------------------------------------------------------- commands

def test_ping_canary_and_release_are_served_while_idle(worker):
    commands.ping(worker.process, worker.lanes, soon())
    bird = canary.make(7)
    proof = commands.verify(worker.process, worker.lanes, bird)
    assert proof.cpu == proof.echo == bird.digest
    assert dict(proof.versions)["python"]
    assert canary.make(7) == bird != canary.make(8)


def test_a_release_returns_a_measured_receipt(worker):
    worker.value("wire_pack:keep", 5)
    assert worker.session.held == 5000
    assert commands.release(worker.process, worker.lanes, Want(None)) == Released(5000, 0)
    commands.ping(worker.process, worker.lanes)
    assert worker.session.held == 0


def test_a_command_waits_while_a_call_computes_and_gives_up_by_name(worker):
    thread = threading.Thread(target=worker.value, args=("wire_pack:sleep", 0.6))
    thread.start()
    until(lambda: worker.session._running is not None)
    with pytest.raises(LaneBusy):
        worker.session.command(Kind.PING, {}, soon(0.05))
    worker.session.command(Kind.PING, {}, soon())
    thread.join(10)


def test_a_second_call_at_the_same_time_is_refused_by_name(worker):
    thread = threading.Thread(target=worker.value, args=("wire_pack:sleep", 0.3))
    thread.start()
    until(lambda: worker.session._running is not None)
    with pytest.raises(LaneBusy):
        worker.session.call({"target": "wire_pack:echo"}, request=10_001, generation=1)
    thread.join(10)


def test_a_command_is_served_in_mid_call_from_the_callbacks_own_thread_and_from_another(worker):
    receipts = []

    def evict():
        receipts.append(commands.release(worker.process, worker.lanes, Want(None), soon()))
        other = threading.Thread(target=lambda: receipts.append(commands.release(worker.process, worker.lanes, Want(0), soon())))
        other.start()
        other.join(10)
        return len(receipts)

    assert worker.value("wire_pack:ask", "evict", callbacks={"evict": evict}) == 2
    assert receipts == [Released(0, 0)] * 2


def test_two_workers_in_callbacks_that_evict_each_other_finish_in_a_second():
    with joined() as one, joined() as two:
        both = threading.Barrier(2)

        def evict(other: Started):
            both.wait(10)
            commands.release(other.process, other.lanes, Want(None), soon())
            return "evicted"

        results: list = []

        def run(mine: Started, other: Started) -> None:
            results.append(mine.value("wire_pack:ask", "evict", callbacks={"evict": lambda: evict(other)}))

        threads = [threading.Thread(target=run, args=pair) for pair in ((one, two), (two, one))]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert results == ["evicted", "evicted"]
        assert time.monotonic() - begun < 5


def test_commands_of_many_threads_get_their_own_answers(worker):
    birds = [canary.make(seed) for seed in range(6)]
    proofs: dict = {}

    def ask(i: int) -> None:
        for _ in range(5):
            proofs[i] = commands.verify(worker.process, worker.lanes, birds[i], soon())

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(birds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [proofs[i].cpu for i in range(len(birds))] == [b.digest for b in birds]


def test_a_frame_kind_the_worker_does_not_know_is_refused_by_name_and_the_lane_goes_on(worker):
    with pytest.raises(DecodeRefused, match="frame kind 99"):
        worker.session.command(Unknown.FUTURE, {}, soon())
    assert worker.value("wire_pack:echo", 1) == 1


# ---------------------------------------------------------------- interrupts

def _interrupted(worker, target, *args):
    threading.Timer(0.15, lambda: worker.session.interrupt(worker.numbers)).start()
    begun = time.monotonic()
    answer = worker.call(target, *args)
    return answer, time.monotonic() - begun


@pytest.mark.parametrize("target", ["sleep", "spin", "progress_until_stopped"])
def test_an_interrupt_ends_python_code_at_the_next_chance(worker, target):
    answer, seconds = _interrupted(worker, f"wire_pack:{target}", 30)
    assert answer.kind == Kind.INTERRUPTED
    assert seconds < 10
    assert worker.value("wire_pack:echo", 1) == 1


def test_a_call_that_swallows_the_exception_can_still_see_the_flag(worker):
    answer, _ = _interrupted(worker, "wire_pack:poll_interrupt", 20)
    assert (answer.kind, answer.value) == (Kind.REPLY, "saw the flag")


def test_a_call_that_swallows_everything_returns_as_it_likes(worker):
    answer, _ = _interrupted(worker, "wire_pack:stubborn", 0.6)
    assert (answer.kind, answer.value) == (Kind.REPLY, 1)


def test_an_interrupt_of_a_call_that_has_ended_touches_nothing(worker):
    worker.value("wire_pack:echo", 1)
    worker.session.interrupt(worker.numbers)
    worker.session.side(Kind.SIDE_PING, {}, soon())
    assert worker.value("wire_pack:sleep", 0.05) == "slept"


def test_an_interrupt_that_overtakes_its_call_is_not_lost(worker):
    worker.session.interrupt(worker.numbers + 1)
    worker.session.side(Kind.SIDE_PING, {}, soon())
    assert worker.call("wire_pack:sleep", 5).kind == Kind.INTERRUPTED


def test_an_interrupt_during_a_callback_is_raised_after_its_answer(worker):
    def wait():
        worker.session.interrupt(worker.numbers)
        worker.session.side(Kind.SIDE_PING, {}, soon())   # the flag is up once this is answered
        return 5

    assert worker.call("wire_pack:ask", "wait", callbacks={"wait": wait}).kind == Kind.INTERRUPTED
    assert worker.value("wire_pack:echo", 1) == 1


def test_interrupts_at_any_moment_never_damage_the_lane(worker):
    kinds = []
    for i in range(200):
        delay = threading.Timer(0.0004 * (i % 10), lambda: worker.session.interrupt(worker.numbers))
        delay.start()
        kinds.append(worker.call("wire_pack:progress", 1500).kind)
        delay.join(10)
    assert set(kinds) <= {Kind.REPLY, Kind.INTERRUPTED}
    assert kinds.count(Kind.INTERRUPTED) > 20
    assert worker.value("wire_pack:echo", 1) == 1


# ---------------------------------------------------------------- side lane

def test_the_side_lane_answers_while_the_call_computes(worker):
    thread = threading.Thread(target=worker.value, args=("wire_pack:sleep", 0.5))
    thread.start()
    until(lambda: worker.session._running is not None)
    assert worker.session.side(Kind.SIDE_PING, {}, soon(5)) == {}
    assert thread.is_alive()
    thread.join(10)


def test_questions_about_a_pack_never_import_it(worker):
    absent = worker.session.side(Kind.REFRESH, {"pack": "this", "class": "X"}, soon())
    assert absent == {"absent": True}
    assert "this" not in worker.value("wire_pack:where")["modules"]


def test_input_types_and_fingerprints_of_a_loaded_pack_are_fresh(worker):
    worker.value("wire_pack:echo", 1)
    ask = {"pack": "wire_pack", "class": "PackNode"}
    first = worker.session.side(Kind.REFRESH, ask, soon())["value"]["required"]["n"][1]["calls"]
    assert worker.session.side(Kind.REFRESH, ask, soon())["value"]["required"]["n"][1]["calls"] == first + 1
    assert worker.session.side(Kind.FINGERPRINT, {**ask, "kwargs": {"n": 3}}, soon()) == {"value": "print 3"}
    assert "TypeError" in worker.session.side(Kind.FINGERPRINT, {**ask, "kwargs": {"z": 3}}, soon())["error"]


@pytest.mark.row("F15")
def test_a_side_lane_held_up_by_native_code_times_out_and_recovers(worker):
    thread = threading.Thread(target=worker.value, args=("wire_pack:hold_the_gil", 0.8))
    thread.start()
    until(lambda: worker.session._running is not None)
    time.sleep(0.1)
    late = worker.session.late
    with pytest.raises(TimeoutError):
        worker.session.side(Kind.SIDE_PING, {}, soon(0.1))
    thread.join(10)
    assert worker.session.side(Kind.SIDE_PING, {}, soon()) == {}
    assert worker.session.late == late + 1
