"""Spinning: where it is done, when it is given up, when it is begun again."""

from __future__ import annotations

import pytest

from comfy_env.worker.wire import spin
from comfy_env.worker.wire.spin import LONGEST, MISSES, Spin


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Poll:
    """Answers after so many looks, each of which takes a microsecond, or after a sleep; counts both."""

    def __init__(self, clock: Clock, looks: int, slow: float = 0.0) -> None:
        self.clock = clock
        self.answer_after = looks
        self.slow = slow
        self.looks = self.sleeps = 0

    def poll(self, timeout):
        if timeout == 0:
            self.looks += 1
            self.clock.now += 1e-6
            return [(3, 1)] if self.looks > self.answer_after else []
        self.sleeps += 1
        self.clock.now += self.slow
        return [(3, 1)]


NEVER = 1 << 60


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setattr(spin, "_processors", lambda: 2)


def test_a_quick_answer_is_met_without_sleeping(clock):
    habit, poll = Spin(clock), Poll(clock, looks=3)
    assert habit.wait(poll, None) == [(3, 1)]
    assert (poll.looks, poll.sleeps, habit.spun, habit.met) == (4, 0, 1, 1)


def test_a_spin_is_bounded_and_then_the_thread_sleeps(clock):
    habit, poll = Spin(clock), Poll(clock, looks=NEVER, slow=0.001)
    assert habit.wait(poll, 5000) == [(3, 1)]
    assert (poll.sleeps, habit.met) == (1, 0)
    assert 0.95 <= poll.looks / (LONGEST * 1e6) <= 1.05


def test_after_so_many_misses_nothing_is_spun_until_an_answer_comes_soon(clock):
    habit = Spin(clock)
    for _ in range(MISSES + 3):
        habit.wait(Poll(clock, looks=NEVER, slow=0.001), None)
    assert habit.spun == MISSES
    habit.wait(Poll(clock, looks=NEVER), None)   # came at once, though nobody spun
    habit.wait(Poll(clock, looks=0), None)
    assert (habit.spun, habit.met) == (MISSES + 1, 1)


@pytest.mark.parametrize("slow, again", [(400e-6, True), (900e-6, False)], ids=["both ends slept", "the call takes long"])
def test_a_lane_that_once_gave_up_spins_again_when_only_the_wake_ups_make_it_slow(clock, slow, again):
    habit = Spin(clock)
    for _ in range(MISSES):
        habit.wait(Poll(clock, looks=NEVER, slow=0.001), None)
    habit.wait(Poll(clock, looks=NEVER, slow=slow), None)
    habit.wait(Poll(clock, looks=0), None)
    assert (habit.met == 1) is again


def test_with_one_processor_nothing_is_spun(clock, monkeypatch):
    monkeypatch.setattr(spin, "_processors", lambda: 1)
    habit, poll = Spin(clock), Poll(clock, looks=0)
    habit.wait(poll, None)
    assert (poll.looks, poll.sleeps, habit.spun) == (0, 1, 0)


def test_a_time_limit_is_the_sleeps(clock):
    class Nothing(Poll):
        def poll(self, timeout):
            self.last = timeout
            self.clock.now += 1e-6
            return []

    poll = Nothing(clock, NEVER)
    assert Spin(clock).wait(poll, 7) == []
    assert poll.last == 7
