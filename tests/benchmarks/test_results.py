"""More rounds are added to the results that are there."""

import pytest

from benchmarks import results


def run(rows, jobs_run, jobs=None, machine="m", day="2026-01-01"):
    return {"machine": machine, "runs": [{"day": day}], "jobs_run": jobs_run, "peers": {"pipe": {}}, "rows": rows, "jobs": jobs or {}}


def test_rounds_of_a_second_run_follow_those_of_the_first():
    before = run({"cold": {"pipe": {"rounds": [1.0], "note": "old"}}}, ["cold"])
    whole = results.added(before, run({"cold": {"pipe": {"rounds": [2.0, 3.0], "note": "new"}}}, ["cold"], day="2026-01-02"))
    assert whole["rows"]["cold"]["pipe"] == {"rounds": [1.0, 2.0, 3.0], "note": "new"}
    assert [one["day"] for one in whole["runs"]] == ["2026-01-01", "2026-01-02"]
    assert before["rows"]["cold"]["pipe"]["rounds"] == [1.0]


def test_rows_and_peers_that_are_new_are_taken_in_and_the_jobs_keep_their_order():
    before = run({"cold": {"pipe": {"rounds": [1.0]}}}, ["cold"], {"stop": {"zmq": {"cannot": "x"}}})
    whole = results.added(before, run({"noop_free": {"zmq": {"rounds": [2.0]}}}, ["noop"], {"stop": {"pipe": {"cannot": "y"}}}))
    assert whole["jobs_run"] == ["noop", "cold"]
    assert set(whole["rows"]) == {"cold", "noop_free"} and whole["jobs"]["stop"] == {"zmq": {"cannot": "x"}, "pipe": {"cannot": "y"}}


def test_rounds_of_another_machine_are_refused():
    with pytest.raises(SystemExit, match="another machine"):
        results.added(run({}, []), run({}, [], machine="other"))


def test_the_fewest_and_the_most_rounds_of_a_figure_are_told():
    told = run({"a": {"pipe": {"rounds": [1.0]}, "zmq": {"rounds": [], "note": "n"}}, "b": {"pipe": {"rounds": [1.0, 2.0]}}}, [])
    assert results.rounds(told) == (1, 2) and results.rounds(run({}, [])) == (0, 0)


def test_results_that_are_not_there_say_how_to_get_them(tmp_path):
    with pytest.raises(SystemExit, match="run `make bench` first"):
        results.load(tmp_path / "results.json")
