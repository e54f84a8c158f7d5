"""What a command says, to people and to programs."""

from __future__ import annotations

import io
import json

import pytest

from comfy_env.cli.screen import Screen, error_facts, in_bytes, in_time, plain_table
from comfy_env.errors import BuildFailed, WorkerCrashed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_a_table_is_aligned_and_its_last_column_is_not_padded(out):
    assert plain_table(["A", "LONG"], [["abc", "x"], ["d", "yz"]]) == ["A    LONG", "abc  x", "d    yz"]


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_letter_the_terminal_does_not_have_is_written_as_its_number_and_not_as_a_traceback(encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    Screen(out=stream, err=stream).say("node \ud800 → 1")
    assert raw.getvalue().startswith(b"node \\ud800")


def test_a_column_that_says_nothing_is_left_out(out):
    Screen(out=out).table(("ENV", "REASON", "PID"), [("a", "", 1), ("b", None, 2)])
    assert out.getvalue() == "ENV  PID\na    1\nb    2\n"


def test_a_table_without_rows_says_so(out):
    Screen(out=out).table(("A",), [], empty="no workers")
    assert out.getvalue() == "no workers\n"


def test_with_json_stdout_holds_one_document_and_nothing_else(out):
    err = io.StringIO()
    screen = Screen(True, out, err)
    screen.table(("A",), [("x",)])
    screen.say("for people")
    screen.note("resolving")
    screen.document({"a": 1})
    assert json.loads(out.getvalue()) == {"a": 1}
    assert "resolving" in err.getvalue()


def test_without_json_no_document_is_written(out):
    Screen(out=out).document({"a": 1})
    assert out.getvalue() == ""


def test_rich_is_used_on_a_terminal_only(out):
    pytest.importorskip("rich")
    assert Screen(out=Terminal()).rich
    assert not Screen(out=out).rich
    assert not Screen(True, Terminal()).rich


def test_a_rich_table_shows_brackets_as_they_are():
    pytest.importorskip("rich")
    terminal = Terminal()
    Screen(out=terminal).table(("ENV", "REASON"), [("demo", "[red]not markup[/red]"), ("other", "ready")])
    assert "[red]not markup[/red]" in terminal.getvalue()


def test_an_error_is_told_in_words_and_with_json_as_a_document_too(out):
    err = io.StringIO()
    Screen(True, out, err).failure(BuildFailed("no wheel", env="demo", hint="allow source builds"))
    assert json.loads(out.getvalue())["error"]["hint"] == "allow source builds"
    assert err.getvalue().startswith("BuildFailed: no wheel [env demo]")


def test_an_errors_facts_are_plain_data():
    facts = error_facts(WorkerCrashed("gone", env="demo", generation=2, pid=7, status="ended by signal 9 (SIGKILL)", output=("last",)))
    assert json.loads(json.dumps(facts)) == {
        "type": "WorkerCrashed", "message": "gone", "env": "demo", "generation": 2, "pid": 7,
        "status": "ended by signal 9 (SIGKILL)", "output": ["last"], "story": [], "hint": "",
    }


def test_a_foreign_error_has_its_type_and_words():
    assert error_facts(KeyError("x")) == {"type": "KeyError", "message": "'x'"}


@pytest.mark.parametrize(("count", "text"), [(None, ""), (0, "0 B"), (2048, "2 KiB"), (5 << 20, "5 MiB"), (3 << 30, "3.0 GiB")])
def test_sizes_are_readable(count, text):
    assert in_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (600, "10 min"), (7200, "2.0 h")])
def test_durations_are_readable(seconds, text):
    assert in_time(seconds) == text
