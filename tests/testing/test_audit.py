"""The audit sees what a test leaves: a thread, a descriptor, a process."""

import os
import subprocess
import sys
import threading
import time

import pytest

from comfy_env.testing.audit import Audit, alive, wait_until


def test_what_was_there_before_is_not_left():
    assert Audit().left() == ()


def test_a_thread_is_named_until_it_ends():
    audit, go = Audit(), threading.Event()
    thread = threading.Thread(target=go.wait, args=(30,), name="straggler")
    thread.start()
    try:
        assert audit.left() == ("thread straggler",)
    finally:
        go.set()
        thread.join(5)
    assert audit.settle() == ()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are listed in /proc")
def test_a_descriptor_is_named_until_it_is_closed():
    audit = Audit()
    ends = os.pipe()
    try:
        assert [line.split(" -> ")[0] for line in audit.left()] == [f"descriptor {end}" for end in sorted(ends)]
    finally:
        for end in ends:
            os.close(end)
    assert audit.settle() == ()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="children are listed in /proc")
def test_a_child_is_named_until_it_is_waited_for():
    audit = Audit()
    child = subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert f"child process {child.pid}" in audit.left()
        assert alive(child.pid)
    finally:
        child.kill()
        wait_until(lambda: not alive(child.pid), 10, "the child is dead")
        child.communicate()
    assert not alive(child.pid)
    assert audit.settle() == ()


def test_waiting_has_a_deadline_that_says_for_what():
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="not within 0.05 s: the moon"):
        wait_until(lambda: False, 0.05, "the moon")
    assert time.monotonic() - began < 5
