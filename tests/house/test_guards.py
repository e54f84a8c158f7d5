"""The guards of conftest.py find what a test leaves behind: a small suite of leaking tests must fail, each by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import ROOT

LEAKS = '''
import os, subprocess, sys, tempfile, threading, time
import conftest, pytest

conftest.GRACE = 0.2
kept = []
stop = threading.Event()

def test_leaves_a_thread():
    kept.append(threading.Thread(target=stop.wait, name="left-thread", daemon=True))
    kept[-1].start()

def test_leaves_a_descriptor():
    kept.append(open(__file__))

def test_leaves_a_child():
    kept.append(subprocess.Popen(["sleep", "60"], start_new_session=True))

def test_leaves_a_zombie():
    child = subprocess.Popen(["true"])
    kept.append(child)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

def test_leaves_an_orphan():
    program = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True, stdout=2).pid)"
    kept.append(int(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout))

def test_leaves_a_folder():
    tempfile.mkdtemp(prefix="left-")

@pytest.mark.deadline(0.2)
def test_hangs():
    threading.Event().wait(30)

@pytest.mark.shares("thread")
def test_may_leave_a_thread():
    threading.Thread(target=stop.wait, daemon=True).start()

def test_winds_down(eventually):
    threading.Timer(0.05, lambda: None).start()

def test_is_clean_after_all_that():
    pass

def teardown_module():
    stop.set()
    for thing in kept:
        if isinstance(thing, subprocess.Popen):
            thing.kill(); thing.wait()
        elif isinstance(thing, int):
            os.kill(thing, 9)
'''
INI = "[pytest]\nmarkers =\n    deadline(seconds): x\n    shares(kinds): x\n    slow: x\n    real: x\n"

EXPECTED = {
    "test_leaves_a_thread": "left-thread",
    "test_leaves_a_descriptor": "test_leaks.py",
    "test_leaves_a_child": "child, state S: sleep 60",
    "test_leaves_a_zombie": "child, state Z",
    "test_leaves_an_orphan": "descendant, state S: sleep 60",
    "test_leaves_a_folder": "left-",
    "test_hangs": "took longer than 0.2 s",
}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("leaks")
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_leaks.py").write_text(LEAKS, encoding="utf-8")
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=80, check=False, cwd=folder).stdout


@pytest.mark.parametrize(("test", "words"), EXPECTED.items())
def test_a_leak_fails_the_test_that_made_it_and_is_named(output: str, test: str, words: str):
    assert any(line.startswith(("ERROR ", "FAILED ")) and f"::{test}" in line for line in output.splitlines()), output
    assert words in output


@pytest.mark.parametrize("test", ["test_may_leave_a_thread", "test_winds_down", "test_is_clean_after_all_that"])
def test_a_clean_test_is_not_blamed(output: str, test: str):
    assert f"PASSED test_leaks.py::{test}" in output
    assert f"ERROR test_leaks.py::{test}" not in output


def test_a_missed_deadline_shows_the_stack(output: str):
    assert "in test_hangs" in output


def test_interpreters_are_counted_only_after_they_ran(interpreters: dict[str, Path]):
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in interpreters
    for version, path in interpreters.items():
        answer = subprocess.run([str(path), "-c", "import sys; print(sys.version)"], capture_output=True, text=True, timeout=30, check=True)
        assert answer.stdout.startswith(version)


def test_eventually_gives_up_at_its_deadline(eventually):
    assert eventually(lambda: 5) == 5
    with pytest.raises(pytest.fail.Exception, match="not within"):
        eventually(lambda: False, seconds=0.05)
