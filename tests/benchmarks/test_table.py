"""What a run becomes as Markdown: nobody is left out silently, and no text breaks a table."""

import json
import subprocess
import sys

import pytest

from benchmarks import page, table
from benchmarks.peers import CHECKOUT
from benchmarks.rows import BY_KEY, ROWS


@pytest.fixture
def run():
    return {
        "machine": {
            "python": "3.11.7", "kernel": "6.1", "libc": "glibc-2.36", "cpu": "a processor", "cores": 2, "memory_gib": 24.0, "torch": "t",
        },
        "runs": [{"day": "2026-01-02", "minutes": 3.0, "rounds": 5, "seed": 0, "load": 0.9, "load_low": 0.2, "load_high": 1.4}],
        "jobs_run": ["noop", "stop"],
        "peers": {
            "pipe": {"title": "mp.Pipe", "version": ""}, "ray": {"title": "Ray", "missing": "no wheel for this | Python"},
            "zmq": {"title": "pyzmq", "version": "27.3.0"}, "comfy_env": {"title": "comfy_env (this)", "version": "1"},
            "loky": {"title": "loky", "version": "3.7.0"},
        },
        "rows": {
            "noop_free": {"pipe": {"rounds": [20e-6, 30e-6, 40e-6]}, "comfy_env": {"rounds": [60e-6, 50e-6, 70e-6], "note": "a <b> | c"}},
            "stop_busy": {"comfy_env": {"rounds": [0.1, 0.2, 0.1]}, "loky": {"rounds": ["never", "never", "never"]}},
        },
        "jobs": {"stop": {"zmq": {"cannot": "it waits"}}, "noop": {"zmq": {"failed": "OSError: no"}}},
    }


def lines(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def test_everyone_who_was_asked_has_a_line_in_every_row_of_theirs(run):
    text = "\n".join(table.everyone(run))
    for title in ("mp.Pipe", "Ray", "pyzmq", "**comfy_env (this)**", "loky"):
        assert len(lines(text, f"| {title} |")) == 3, title


def test_who_cannot_failed_or_is_not_installed_says_so_by_name(run):
    text = "\n".join(table.everyone(run))
    assert "| pyzmq | – | | | cannot: it waits |" in text
    assert "| pyzmq | – | | | failed: OSError: no |" in text
    assert "| Ray | – | | | not installed: no wheel for this \\| Python |" in text


def test_a_row_is_sorted_by_its_medians_with_the_absent_last(run):
    rows = [line.split("|")[1].strip() for line in table.everyone(run) if line.startswith("| ")]
    first = rows[1:6]
    assert first[:2] == ["mp.Pipe", "**comfy_env (this)**"] and set(first[2:]) == {"Ray", "pyzmq", "loky"}


def test_the_ratio_is_how_many_times_ours_a_peer_takes(run):
    assert "| mp.Pipe | 30.0 µs | 20.0–40.0 µs | 0.50 |  |" in table.everyone(run)


def test_what_never_ended_is_called_so_and_has_no_ratio(run):
    assert "| loky | never |  |  |  |" in table.everyone(run)


def test_a_note_cannot_break_its_table(run):
    row = next(line for line in table.everyone(run) if "**comfy_env" in line)
    assert row.endswith("| a &lt;b> \\| c |")


def test_what_a_row_of_ours_alone_says_is_told(run):
    run["jobs_run"] = ["flat"]
    run["rows"]["flat_calls"] = {"comfy_env": {"rounds": [1.0], "note": "100, 101 µs"}}
    assert any(line.startswith("| `flat_calls` |") and line.endswith("| 100, 101 µs |") for line in table.alone(run))


def test_the_summary_has_every_row_that_was_run_and_no_other(run):
    assert [line.split("`")[1] for line in table.summary(run)[2:]] == ["noop_free", "noop_free_p99", "stop_busy"]


def test_the_summary_tells_kept_and_missed(run):
    told = {line.split("`")[1]: line for line in table.summary(run)[2:]}
    assert told["noop_free"].endswith("| **missed** |") and "2.00, 4.00 times too much" in told["noop_free"]
    assert told["stop_busy"].endswith("| kept |")


def test_the_page_says_why_a_row_misses_or_that_nobody_looked(run, monkeypatch):
    monkeypatch.setattr(page, "WHY", {})
    assert "Nobody has looked for the reason yet." in page.text(run, False)
    monkeypatch.setattr(page, "WHY", {"noop_free": "Because."})
    assert lines(page.text(run, False), "- `noop_free`")[0].endswith("Because.")


def test_the_page_says_when_others_were_busy(run):
    assert page.LOADED not in page.text(run, False)
    run["runs"][0]["load"] = 4.0
    assert page.LOADED in page.text(run, False)


def test_the_page_shows_the_picture_only_where_one_was_drawn(run):
    assert "performance.png" in page.text(run, True) and "performance.png" not in page.text(run, False)


def test_a_reason_belongs_to_a_row_with_a_target():
    assert {key for key in page.WHY if not BY_KEY[key].targets} == set()


def test_rows_have_names_of_their_own():
    assert len(BY_KEY) == len(ROWS)


def test_a_page_and_its_picture_are_made_of_a_run_with_gaps(run, tmp_path):
    pytest.importorskip("matplotlib")
    results = tmp_path / "results.json"
    results.write_text(json.dumps(run))
    command = [sys.executable, "-m", "benchmarks.page", "--results", results, "--page", tmp_path / "page.md"]
    subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "page.md").read_text() == page.text(run, True)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_of_fewer_than_five_rounds_calls_itself_provisional(run):
    assert page.FEW in page.text(run, False)
    for row in run["rows"].values():
        for cell in row.values():
            cell["rounds"] = cell["rounds"] * 2
    assert page.FEW not in page.text(run, False)
