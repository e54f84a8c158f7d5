"""A crash is answered when it happens, by its signal and with its Python stack, whatever memory the process has to give back first."""

import os
import statistics
import time

import pytest

from comfy_env import errors
from tests.contract.worlds import REAL, over

PROMISED = 0.010
"""Seconds from the fault to the named error."""
TRIES = 5
GIB = 1 << 30
LIE = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0001 (most recent call first):\n  File \"x\", line 1 in y\n"


def crashed(call, *args):
    with pytest.raises(errors.WorkerCrashed) as caught:
        call(*args)
    return caught.value


def time_crashes(call, mark, size):
    """Return the seconds from each of some faults to its error, and the last error."""
    took = []
    for _ in range(TRIES):
        call("crashing:hold", size)
        error = crashed(call, "crashing:fault", str(mark))
        took.append(time.monotonic() - float(mark.read_text()))
    return took, error


def promised_in_time(call, mark, size, load, record_property):
    took, error = time_crashes(call, mark, size)
    record_property("milliseconds to the answer", [round(seconds * 1000, 2) for seconds in took])
    assert "SIGSEGV" in error.status and "in fault" in error.stack
    assert statistics.median(took) <= load(PROMISED), took


@over(*REAL)
def test_a_segfault_is_answered_with_its_stack_although_its_memory_is_not_given_back_yet(stage, tmp_path, load, record_property):
    promised_in_time(stage.run, tmp_path / "mark", GIB // 4, load, record_property)


@pytest.mark.long
@pytest.mark.parametrize("gib", [0, 2])
def test_a_segfault_of_a_worker_that_holds_2_gib_is_answered_as_soon_as_any(pool, plan, tmp_path, load, record_property, gib):
    promised_in_time(lambda *words: pool.call(plan, *words), tmp_path / "mark", gib * GIB, load, record_property)


@pytest.mark.parametrize(("target", "args", "name"), [
    ("crashing:fault", (), "SIGSEGV"),
    ("crashing:fault_on_a_thread", (), "SIGSEGV"),
    ("crashing:abort", (), "SIGABRT"),
    ("crashing:raise_signal", ("SIGBUS",), "SIGBUS"),
    ("crashing:raise_signal", ("SIGFPE",), "SIGFPE"),
    ("crashing:raise_signal", ("SIGILL",), "SIGILL"),
])
def test_the_signal_is_named_and_the_stack_is_told(pool, plan, target, args, name):
    error = crashed(pool.call, plan, target, *args)
    assert (error.env, error.generation) == (plan.key, 1) and error.pid
    assert name in error.status and name in str(error)
    assert "crashing.py" in error.stack, error
    assert "Fatal Python error" in "\n".join(error.output), "its log and its last lines have it too"


def test_every_python_tells_its_crash(pool, make_plan, pythons):
    for version, python in pythons.items():
        error = crashed(pool.call, make_plan("py" + ".".join(map(str, version)), python), "crashing:fault")
        assert "SIGSEGV" in error.status and "in fault" in error.stack, (version, error)


def test_the_next_worker_comes_when_the_crashed_one_is_gone_and_the_story_tells_its_exit(pool, plan):
    pool.call(plan, "crashing:hold", GIB // 4)
    error = crashed(pool.call, plan, "crashing:fault")
    assert pool.call(plan, "crashing:is_there", error.pid) is False
    assert pool.record(plan).generation == 2
    story = "\n".join(pool.story(plan))
    told, exited = story.index("crash told (ended by signal 11 (SIGSEGV))"), story.index("process exited (ended by signal 11 (SIGSEGV))")
    assert told < exited < story.index("tree gone")


def test_callers_behind_a_crash_are_served_by_the_next_worker(pool, plan):
    pid = pool.call(plan, "crashing:fault_soon", 0.05)
    error = crashed(pool.call, plan, "jobs:sleep_on")
    assert error.pid == pid and "in fault" in error.stack
    assert pool.call(plan, "crashing:pid") != pid


def test_a_worker_that_crashes_while_nobody_calls_is_replaced_unseen(pool, plan, eventually):
    pid = pool.call(plan, "crashing:fault_soon", 0.05)
    eventually(lambda: pool.record(plan) is None or pool.record(plan).state in ("cold", "closing"))
    assert pool.call(plan, "crashing:pid") != pid
    assert "crash told" in "\n".join(pool.story(plan))


# ---------------------------------------------------------------- packs that touch the pipe

@pytest.mark.parametrize("text", ["a\n", "no line", LIE, "x" * 60_000], ids=["line", "piece", "lie", "much"])
def test_what_a_pack_writes_into_the_crash_pipe_ends_no_call(pool, plan, text):
    pid = pool.call(plan, "crashing:pid")
    assert pool.call(plan, "crashing:write_then_sleep", text, 0.4) == pid
    assert pool.call(plan, "crashing:pid") == pid and pool.record(plan).generation == 1
    error = crashed(pool.call, plan, "crashing:fault")
    assert "SIGSEGV" in error.status, "believed or not, the exit tells"


def test_more_than_the_crash_pipe_holds_blocks_nobody(pool, plan):
    assert pool.call(plan, "crashing:write_into_the_crash_pipe", "x" * 4000 + "\n", 100) == 1
    assert pool.record(plan).generation == 1


@pytest.mark.parametrize("trick", ["close_the_crash_pipe", "enable_its_own_handler"])
def test_a_pack_that_takes_the_crash_pipe_away_is_told_by_its_exit(pool, plan, trick):
    pid = pool.call(plan, "crashing:pid")
    pool.call(plan, f"crashing:{trick}")
    assert pool.call(plan, "crashing:pid") == pid
    error = crashed(pool.call, plan, "crashing:fault")
    assert "SIGSEGV" in error.status and error.pid == pid
    assert pool.call(plan, "crashing:pid") != pid


@pytest.mark.parametrize("by", ["python", "c"])
def test_a_crash_of_a_forked_child_is_not_the_workers(pool, plan, by):
    pid = pool.call(plan, "crashing:pid")
    assert pool.call(plan, "crashing:crash_in_a_forked_child", by) == 11
    assert pool.call(plan, "crashing:pid") == pid and pool.record(plan).generation == 1


def test_a_forked_child_does_not_hold_the_crash_pipe(pool, plan):
    assert pool.call(plan, "crashing:pipes_of_a_forked_child") == 0


def test_crashes_leave_no_descriptors(pool, plan):
    counts = []
    for _ in range(4):
        crashed(pool.call, plan, "crashing:fault")
        pool.call(plan, "crashing:pid")
        counts.append(len(os.listdir("/proc/self/fd")))
    assert len(set(counts)) == 1, counts
