"""The arithmetic of a run: medians, spread, units, and what becomes of a target."""

import math

import pytest

from benchmarks import figures
from benchmarks.figures import Figure
from benchmarks.rows import BEST, Row, Target


def result(**cells):
    """Return a run with one row "r": each peer with the values of its rounds."""
    return {"rows": {"r": {peer: {"rounds": rounds} for peer, rounds in cells.items()}}}


def verdict(target, **cells):
    return figures.judged(result(**cells), Row("r", "a row", "noop", "ms", (target,)), target)


def test_a_figure_is_the_median_with_the_lowest_and_the_highest_round():
    assert figures.figure([3.0, 1.0, 9.0, 2.0, 4.0]) == Figure(3.0, 1.0, 9.0, 5)


def test_no_rounds_give_no_figure():
    assert figures.figure([]) is None
    assert figures.figures({"rows": {"r": {"pipe": {"rounds": [], "note": "x"}}}}, "r") == {}


def test_a_round_that_never_ended_is_the_slowest_of_all():
    told = figures.figures(result(zmq=["never", "never", 2.0]), "r")["zmq"]
    assert math.isinf(told.median) and told.low == 2.0


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.0000123, "us", "12.3 µs"), (0.0005, "ms", "0.50 ms"), (0.123, "ms", "123 ms"), (1.5, "ms", "1.50 s"), (math.inf, "ms", "never"),
    (3 << 20, "MiB", "3.00 MiB"), (0.54, "", "0.54"), (1234.0, "s", "1,234 s"),
])
def test_a_value_is_shown_in_its_unit_with_about_three_digits(value, unit, text):
    assert figures.shown(value, unit) == text


def test_the_spread_names_its_unit_once_where_both_ends_have_the_same():
    assert figures.spread(Figure(0.002, 0.001, 0.003, 3), "ms") == "1.00–3.00 ms"
    assert figures.spread(Figure(0.9, 0.5, 1.2, 3), "ms") == "500 ms–1.20 s"


def test_one_round_has_no_spread():
    assert figures.spread(Figure(0.002, 0.002, 0.002, 1), "ms") == ""


def test_a_ratio_to_a_peer_is_kept_up_to_its_limit_and_missed_beyond():
    kept = verdict(Target(0.5, "pipe"), comfy_env=[0.010], pipe=[0.020])
    missed = verdict(Target(0.5, "pipe"), comfy_env=[0.020], pipe=[0.010])
    assert kept.met is True and kept.text == "≤ 0.5 × mp.Pipe: 0.50"
    assert missed.met is False and missed.text == "≤ 0.5 × mp.Pipe: 2.00, 4.00 times too much"


def test_an_absolute_target_says_how_far_off_it_was():
    missed = verdict(Target(plus=0.010), comfy_env=[0.030])
    assert missed.met is False and missed.text == "≤ 10.0 ms: 30.0 ms, 3.00 times too much"
    assert verdict(Target(plus=0.010), comfy_env=[0.010]).met is True


def test_the_best_peer_is_neither_a_physical_limit_nor_ourselves():
    told = figures.figures(result(inprocess=[0.001], socketpair=[0.002], comfy_env=[0.003], loky=[0.005], zmq=[0.004]), "r")
    assert figures.best(told) == "zmq"
    assert "the best peer (pyzmq)" in verdict(Target(0.3, BEST), comfy_env=[0.001], zmq=[0.004], loky=[0.005]).text


def test_a_ratio_with_a_constant_is_judged_by_their_sum():
    target = Target(1.1, "inprocess", plus=0.05)
    assert verdict(target, comfy_env=[1.15], inprocess=[1.0]).met is True
    assert verdict(target, comfy_env=[1.16], inprocess=[1.0]).met is False


def test_a_target_may_be_our_own_figure_of_another_row():
    run = {"rows": {"r": {"comfy_env": {"rounds": [0.3]}}, "other": {"comfy_env": {"rounds": [0.2]}}}}
    told = figures.judged(run, Row("r", "a row", "noop", "ms"), Target(2, "comfy_env", "other"))
    assert told.met is True and told.text == "≤ 2 × own `other`: 1.50"


def test_a_target_without_the_other_figure_is_not_judged():
    assert verdict(Target(0.5, "pipe"), comfy_env=[0.010]).met is None
    assert verdict(Target(0.5, BEST), comfy_env=[0.010]).met is None
    assert verdict(Target(0.5, "pipe"), pipe=[0.010]).met is None


def test_a_peer_that_never_ends_does_not_make_a_ratio():
    told = verdict(Target(0.5, "pipe"), comfy_env=[0.010], pipe=["never"])
    assert told.met is True and "the other never" in told.text


def test_the_tightest_target_of_a_row_is_the_lowest_limit_that_can_be_told():
    run = result(comfy_env=[0.1], pipe=[0.2], ray=["never"])
    row = Row("r", "a row", "noop", "ms", (Target(0.5, "pipe"), Target(plus=0.3), Target(0.1, "ray"), Target(0.1, "zmq")))
    assert figures.tightest(run, row) == 0.1
    assert figures.tightest(run, Row("r", "a row", "noop", "ms")) is None
