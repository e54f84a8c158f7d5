"""Tools are run with their output kept, a heartbeat, and an end for everything they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from comfy_env.envs import tools
from comfy_env.envs.journal import Journal
from comfy_env.errors import BuildFailed

CHILD = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True)
time.sleep({})
"""


class Stop(Exception):
    """Enough."""


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"


def python(code):
    return [sys.executable, "-c", code]


def quiet():
    """Nothing to do at a tick."""


def test_every_line_is_heard_whatever_ends_it():
    heard = []
    code = r"import sys; sys.stdout.buffer.write(b'one\ntwo\rthree\xff\r\n\n' + b'x' * 200_000 + b'\nend'); sys.stderr.write('err')"
    assert tools.follow(python(code), heard.append, quiet) == ""
    assert heard[:3] == ["one", "two", "three�"] and sum(map(len, heard)) > 200_000 and any("err" in line for line in heard)


def test_an_exit_status_and_a_signal_are_told_apart():
    assert tools.follow(python("raise SystemExit(101)"), print, quiet) == "exited with status 101"
    assert "SIGABRT" in tools.follow(python("import os; os.abort()"), print, quiet)
    assert "cannot be run" in tools.follow(["/nowhere/tool"], print, quiet)


def test_giving_up_ends_the_tool_and_what_it_started(eventually):
    pids = []

    def hear(line):
        pids.append(int(line))
        raise Stop

    with pytest.raises(Stop):
        tools.follow(python(CHILD.format(600)), hear, quiet)
    eventually(lambda: gone(pids[0]))


def test_giving_up_at_a_tick_ends_a_silent_tool():
    begun = time.monotonic()

    def tick():
        raise Stop

    with pytest.raises(Stop):
        tools.follow(python("import time; time.sleep(600)"), print, tick)
    assert time.monotonic() - begun < 10


def test_a_tool_that_leaves_something_running_does_not_hold_the_build_up(eventually):
    heard = []
    assert tools.follow(python(CHILD.format(0)), heard.append, quiet) == ""
    eventually(lambda: gone(int(heard[0])))


def test_a_question_has_a_limit_and_leaves_nothing_behind(tmp_path, eventually):
    note = tmp_path / "pid"
    answer = tools.ask(["sh", "-c", f"sleep 600 & echo $! > '{note}'; wait"], 1.0)
    assert "no answer within 1 s" in answer.trouble
    eventually(lambda: gone(int(note.read_text())))


def test_a_tool_ends_with_the_process_that_runs_it(tmp_path, eventually):
    note = tmp_path / "pid"
    code = f"from comfy_env.envs import tools; tools.follow(['sh', '-c', 'echo $$ > {note}; sleep 600'], print, lambda: None)"
    with subprocess.Popen(python(code)) as host:
        eventually(lambda: note.exists() and note.read_text().strip())
        host.send_signal(signal.SIGKILL)
    eventually(lambda: gone(int(note.read_text())))


def test_a_silent_tool_is_reported_at_least_every_ten_seconds(tmp_path):
    steps = []
    with Journal("k", tmp_path / "log", steps.append) as journal:
        journal.run("installing", python("import time; time.sleep(4.5)"), {}, tmp_path)
    assert [step.text for step in steps if "so far" in step.text] and {step.key for step in steps} == {"k"}


def test_the_log_of_a_build_is_its_users_alone_also_where_an_older_one_was_not(tmp_path):
    log = tmp_path / "log"
    log.touch(0o644)
    log.chmod(0o644)
    for path in (log, tmp_path / "new"):
        with Journal("k", path, lambda step: None) as journal:
            journal.note("a line")
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_failure_names_the_log_and_the_last_lines_and_keeps_secrets_out_of_both(tmp_path):
    steps, log = [], tmp_path / "deep" / "log"
    code = "import sys; [print('line', n) for n in range(100)]; print('at https://u:hunter22@h/ and hunter22 alone'); sys.exit(7)"
    with pytest.raises(BuildFailed) as caught, Journal("k", log, steps.append) as journal:
        journal.secrets = ("hunter22",)
        journal.run("installing", python(code), {}, tmp_path, lambda lines: "wheels only")
    error = caught.value
    assert "exited with status 7" in error.message and str(log) in error.hint and "wheels only" in error.hint
    assert len(error.output) == 40 and error.output[-2] == "line 99"
    assert "line 3" in log.read_text()
    assert "hunter22" not in log.read_text() + str(error) + "".join(step.text for step in steps)
