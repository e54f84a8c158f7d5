"""The worker's parts by themselves: what stays resident, what is given back, how interrupts are armed, how errors are told."""

from __future__ import annotations

import threading
import time

import pytest

from comfy_env.worker import callback, closures
from comfy_env.worker.calls import Calls, find
from comfy_env.worker.interrupts import CallInterrupted, Interrupts, ThreadInterrupts
from comfy_env.worker.memory import Keepers
from comfy_env.worker.raised import describe
from comfy_env.worker.resident import Resident
from comfy_env.worker.wire.faults import DecodeFault, ReferenceGone
from comfy_env.worker.wire.kinds import Kind
from tests.transport.workers import until


class Thing:
    """Something to hold."""


# ---------------------------------------------------------------- resident objects

def test_an_object_has_one_number_and_goes_with_its_last_reference():
    resident, thing = Resident(), Thing()
    assert resident.hold(thing) == resident.hold(thing) != resident.hold(Thing())
    number = resident.hold(thing)
    resident.drop([number, number, 12345])
    assert resident.get(number) is thing
    resident.drop([number])
    with pytest.raises(ReferenceGone, match=f"no object {number}"):
        resident.get(number)


def test_a_destructor_may_use_the_store_it_is_dropped_from():
    resident = Resident()

    class Nosy:
        def __del__(self):
            resident.hold(Thing())

    number = resident.hold(Nosy())
    resident.drop([number])
    assert len(resident) == 1


# ---------------------------------------------------------------- memory

def test_a_release_stops_at_what_was_wanted_and_measures_what_it_did():
    keepers, caches = Keepers(), [[b"x" * 100], [b"y" * 50], []]
    for cache in caches:
        keepers.add(lambda cache=cache: sum(map(len, cache)), cache.clear)
    assert keepers.held() == 150
    assert keepers.release(10) == (100, 50)
    assert keepers.release(None) == (50, 0)
    assert keepers.release(None) == (0, 0)


# ---------------------------------------------------------------- interrupts

@pytest.fixture
def struck():
    strikes: list = []
    interrupts = Interrupts(strike=lambda: strikes.append(1), take_back=lambda: strikes.append(-1))
    return interrupts, strikes


def test_only_the_call_that_runs_is_interrupted_and_only_while_it_is_armed(struck):
    interrupts, strikes = struck
    interrupts.begin(5)
    assert not interrupts.interrupt(4)
    assert interrupts.interrupt(5)
    assert strikes == []
    with pytest.raises(CallInterrupted):
        interrupts.arm()
    assert interrupts.interrupt(5)
    assert strikes == [1]
    interrupts.disarm()
    assert strikes == [1, -1]
    interrupts.end()
    assert not interrupts.interrupt(5)
    interrupts.begin(6)
    interrupts.arm()
    assert not interrupts.wanted


def test_a_late_interrupt_of_an_ended_call_does_not_hide_the_early_one_of_the_next():
    interrupts = Interrupts(strike=lambda: None, take_back=lambda: None)
    interrupts.interrupt(5)
    interrupts.interrupt(3)
    interrupts.begin(5)
    assert interrupts.wanted


def test_an_interrupt_of_a_call_on_a_thread_is_raised_there_and_taken_back_when_late():
    results: list = []
    ready = threading.Event()

    def serve():
        calls = Calls(ThreadInterrupts())
        results.append(calls)
        for request in range(1, 40):
            ready.set()
            results.append(calls.run(request, {"target": "tests.worker.test_parts:spin", "args": (0.2 if request == 1 else 0.002,)}))

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait(10)
    calls = results[0]
    until(lambda: calls.interrupts.interrupt(1))
    while thread.is_alive():
        request = calls.request
        if request:
            calls.interrupts.interrupt(request)
        time.sleep(0.001)
    thread.join(10)
    assert results[1] == (Kind.INTERRUPTED, {})
    assert {kind for kind, _ in results[1:]} <= {Kind.INTERRUPTED, Kind.REPLY}
    assert len(results) == 40


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(50))
    return "spun"


# ---------------------------------------------------------------- calls

def test_a_target_is_found_by_module_and_qualified_name():
    assert find("tests.worker.test_parts:Thing.__init_subclass__") == Thing.__init_subclass__
    with pytest.raises(AttributeError):
        find("tests.worker.test_parts:nothing")


def test_an_error_is_described_in_plain_values_whatever_its_class_does():
    class Odd(Exception):
        def __str__(self):
            raise KeyError("x")

    try:
        raise Odd(Thing(), 5)
    except Odd as error:
        told = describe(error, skip=0)
    assert told["args"] == ("<tests.worker.test_parts.Thing>", 5)
    assert "cannot be had: KeyError" in told["text"]
    assert "test_parts.py" in told["traceback"]


def test_a_function_by_value_without_a_cloudpickle_is_refused():
    with pytest.raises(DecodeFault, match="named no cloudpickle"):
        closures.load(b"", None)


def test_code_outside_a_worker_is_told_that_there_is_no_host():
    for ask in (lambda: callback.report_progress(1, 2), lambda: callback.call_host("f"), lambda: callback.register_cache(int, int)):
        with pytest.raises(callback.NoHost):
            ask()
