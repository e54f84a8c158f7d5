"""One holder at a time, known by name, and gone with its process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from comfy_env.envs import locks

HOLD = """
import sys
from pathlib import Path
from comfy_env.envs import locks
with locks.held(Path(sys.argv[1]), 'build', print):
    print('held', flush=True)
    sys.stdin.read()
"""


class GivenUp(Exception):
    """The waiting one had enough."""


def give_up(holder):
    raise GivenUp(str(holder))


def test_a_free_lock_has_no_holder(tmp_path):
    file = tmp_path / "deep" / "x.lock"
    assert locks.holder(file) is None
    with locks.held(file, "build", give_up):
        assert locks.holder(file) is not None
    assert locks.holder(file) is None


def test_another_thread_of_this_process_waits_its_turn(tmp_path):
    file, order, entered = tmp_path / "x.lock", [], threading.Event()

    def other():
        with locks.held(file, "build", lambda holder: entered.set()):
            order.append("other")

    with locks.held(file, "build", give_up):
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


def test_the_one_who_waits_hears_who_holds_it_and_may_give_up(tmp_path, eventually):
    file = tmp_path / "x.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(GivenUp, match=rf"process {child.pid} on .* \(build since "), locks.held(file, "remove", give_up):
            pytest.fail("it was held")
        child.kill()
    eventually(lambda: locks.holder(file) is None)
    with locks.held(file, "build", give_up):
        assert locks.holder(file) is not None


def test_a_lock_whose_file_was_discarded_is_no_lock(tmp_path):
    file, waits = tmp_path / "x.lock", threading.Event()
    took = []

    def other():
        with locks.held(file, "build", lambda holder: waits.set()):
            took.append(locks.holder(file) is not None)

    with locks.held(file, "remove", give_up):
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(10)
        locks.discard(file)
    thread.join(10)
    assert took == [True]
