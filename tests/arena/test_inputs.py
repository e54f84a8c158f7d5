"""What a worker does to its inputs stays there, however often and from wherever a value comes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arena.kit import arena_worker

COUNT = 50_000   # float32: 200 kB, more than fits a frame


@pytest.fixture(scope="module")
def a():
    with arena_worker(env="a") as worker:
        yield worker


@pytest.fixture(scope="module")
def b():
    with arena_worker(env="b") as worker:
        yield worker


@pytest.fixture(autouse=True)
def _forget(a, b):
    yield
    a.value("arena_pack:let_go")
    b.value("arena_pack:let_go")


def test_a_node_that_writes_into_its_input_does_not_change_the_hosts_value(a):
    mine = np.ones(COUNT, "f4")
    assert a.value("arena_pack:fill", mine, 7).sum() == 7 * COUNT
    assert mine.sum() == COUNT


def test_nor_one_that_came_from_another_worker(a, b):
    made = a.value("arena_pack:ones", COUNT)
    assert b.value("arena_pack:fill", made, 7).sum() == 7 * COUNT
    assert made.sum() == COUNT
    assert b.session.traffic["copied"] <= 200_000


def test_a_value_sent_again_is_the_hosts_though_the_worker_wrote_into_the_first_and_kept_it(a, b):
    made, own = a.value("arena_pack:ones", COUNT), np.ones(COUNT, "f4")
    for value in (made, own):
        b.value("arena_pack:keep_filled", value, 7)
        assert b.value("arena_pack:total", value) == COUNT
    assert b.value("arena_pack:kept_totals") == [7 * COUNT] * 2


def test_nor_does_it_read_stale_when_the_first_was_let_go(a, b):
    made = a.value("arena_pack:ones", COUNT)
    for number in (7, 8):
        assert b.value("arena_pack:fill", made, number)[0] == number
        assert b.value("arena_pack:total", made) == COUNT


def test_a_value_the_host_changed_is_read_changed(a, b):
    made = a.value("arena_pack:ones", COUNT)
    assert b.value("arena_pack:total", made) == COUNT
    made += 1
    assert b.value("arena_pack:total", made) == 2 * COUNT


def test_parts_less_than_a_page_apart_do_not_see_each_other(a, b):
    made = a.value("arena_pack:ones", 2 * COUNT)
    first, second = made[:COUNT], made[COUNT + 10:]
    assert b.value("arena_pack:fill_first", first, second, 7).sum() == COUNT - 10
    assert b.session.traffic["copied"] < 1_000_000
    assert made.sum() == 2 * COUNT


def test_one_value_given_twice_is_one_value_and_two_views_of_it_are_two(a):
    own = np.ones(COUNT, "f4")
    assert a.value("arena_pack:fill_first", own, own, 7).sum() == 7 * COUNT
    assert a.value("arena_pack:fill_first", own, own[:], 7).sum() == COUNT


def test_a_worker_may_return_its_own_changed_input(a, b):
    made = a.value("arena_pack:ones", COUNT)
    back = b.value("arena_pack:fill", made, 3)
    back += 1
    assert (made.sum(), back.sum()) == (COUNT, 4 * COUNT)


def test_what_came_from_a_worker_goes_back_to_it_without_a_byte_copied(a):
    made = a.value("arena_pack:ones", COUNT)
    before = a.session.traffic
    assert a.value("arena_pack:fill", made, 7).sum() == 7 * COUNT
    after = a.session.traffic
    assert (after["copied"], after["passed"] - before["passed"]) == (before["copied"], 4 * COUNT)
    assert made.sum() == COUNT


def test_results_can_be_written_to_in_the_host(a):
    made = a.value("arena_pack:ones", COUNT)
    made *= 2
    again = a.value("arena_pack:ones", COUNT)
    assert (made.sum(), again.sum()) == (2 * COUNT, COUNT)


def test_a_random_history_of_sending_keeping_and_forgetting_never_shows_a_wrong_value(a, b):
    random = np.random.default_rng(4)
    held: list[tuple[float, np.ndarray]] = []
    for step in range(300):
        worker = (a, b)[random.integers(2)]
        if held and random.random() < 0.6:
            number, value = held[random.integers(len(held))]
            start = int(random.integers(0, 1000))
            act = ("arena_pack:total", "arena_pack:fill", "arena_pack:keep_filled")[random.integers(3)]
            args = () if act.endswith("total") else (-step,)
            answer = worker.value(act, value[start:], *args)
            if act.endswith("total"):
                assert answer == number * (value.size - start)
            elif act.endswith("fill"):
                assert set(np.unique(answer)) == {-step}
        else:
            made = worker.value("arena_pack:plus_one", np.full(int(random.integers(20_000, 90_000)), step, "f4"))
            held.append((step + 1, made))
        if len(held) > 6:
            held.pop(random.integers(len(held)))
        if random.random() < 0.1:
            worker.value("arena_pack:let_go")
        assert all(value.min() == value.max() == number for number, value in held)
