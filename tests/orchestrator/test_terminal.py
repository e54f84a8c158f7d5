"""In a terminal: a real pty, an interactive bash, and Ctrl-C that reaches whoever serves by then."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfy_env.orchestrator import front
from comfy_env.orchestrator.__main__ import FRONT

from .town import Town, is_zombie, town

pytestmark = pytest.mark.deadline(150)
BASH = shutil.which("bash")
PROMPT = "READY> "


class Terminal:
    """A bash on a pty: what is typed reaches its foreground job, what is shown is kept."""

    def __init__(self, here: Town) -> None:
        self.shown = ""
        self.master, slave = pty.openpty()
        self.shell = subprocess.Popen(
            [BASH, "--norc", "--noprofile", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**here.environ, "PS1": PROMPT, "TERM": "dumb"},
            cwd=here.folder,
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(),
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal")
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal closed
            while True:
                if select.select([self.master], [], [], 0.2)[0]:
                    text = os.read(self.master, 65536)
                    if not text:
                        return
                    self.shown += text.decode(errors="replace")
                elif self.shell.poll() is not None:
                    return

    def __str__(self) -> str:
        return self.shown

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait(10)
        self._reader.join(10)
        os.close(self.master)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path, CONFIRM_S="0.3") as here:
        here.state.mkdir()
        yield here


@pytest.fixture
def terminal(here: Town) -> Iterator[Terminal]:
    found = Terminal(here)
    try:
        here.wait(lambda: PROMPT in found.shown, 20, "a prompt")
        yield found
    finally:
        found.close()


def is_front(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:4] == [b"-I", b"-S", b"-c"]


def served_in(terminal: Terminal, here: Town) -> int:
    terminal.type(" ".join(here.argv()) + "; echo STATUS=$?\n")
    return here.wait(lambda: here.owner.get("pid"), 30, "it serves") or 0


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize("restarts", [0, 2])
def test_ctrl_c_reaches_the_generation_that_serves_and_the_shell_gets_its_prompt_back(here: Town, terminal: Terminal, restarts: int):
    first = served_in(terminal, here)
    for number in range(restarts):
        here.do("restart")
        here.generation(number + 2)
    if restarts:
        here.wait(lambda: len(here.services()) == 1, 20, "only the last generation serves")
        here.wait(lambda: is_front(first), 20, "the first process is the front")
        assert os.getpgid(here.owner["pid"]) == os.getpgid(first), "the successor left the terminal's foreground"
        assert "STATUS=" not in terminal.shown.replace("STATUS=$?", ""), "the shell took the terminal back"
    terminal.type("\x03")
    here.wait(lambda: "STATUS=0" in terminal.shown, 20, "the shell is back")
    here.wait(lambda: here.services() == [], 10, "nobody serves")


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_a_term_to_the_first_process_ends_the_last_generation(here: Town, terminal: Terminal):
    first = served_in(terminal, here)
    here.do("restart")
    here.generation(2)
    here.wait(lambda: is_front(first), 20, "the first process is the front")
    os.kill(first, signal.SIGTERM)
    here.wait(lambda: "STATUS=0" in terminal.shown, 20, "the shell is back")
    assert here.services() == []


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_the_shell_is_told_how_the_last_generation_died(here: Town, terminal: Terminal):
    served_in(terminal, here)
    for number in range(2):
        here.do("restart")
        here.generation(number + 2)
    here.wait(lambda: len(here.services()) == 1, 20)
    os.kill(here.owner["pid"], signal.SIGKILL)
    here.wait(lambda: "STATUS=137" in terminal.shown, 20, "the shell is back")


def test_without_a_terminal_the_first_process_ends_and_its_successor_has_a_session_of_its_own(tmp_path: Path):
    with town(tmp_path, CONFIRM_S="0.3") as here:
        here.start()
        here.do("restart")
        successor = here.generation(2)
        assert here.first.wait(20) == 0
        assert os.getsid(successor) == successor
        here.do("stop")
        here.wait(lambda: is_zombie(successor), 20)


# ---- the front by itself


def test_the_front_is_run_from_its_text_with_the_standard_library_alone():
    assert FRONT == Path(front.__file__).read_text()
    read, write = os.pipe()
    program = [sys.executable, "-I", "-S", "-c", FRONT]
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(9)"], stdin=subprocess.PIPE) as serving:
        with subprocess.Popen([*program, str(read), str(serving.pid)], pass_fds=(read,)) as waiter:
            os.close(read)
            os.write(write, json.dumps({"pid": serving.pid, "generation": 2}).encode() + b"\n")
            os.write(write, json.dumps({"pid": serving.pid, "status": 75}).encode() + b"\n")
            assert waiter.poll() is None
            os.close(write)
            assert waiter.wait(20) == 75
        serving.stdin.close()
        serving.wait(10)


@pytest.mark.parametrize(
    ("words", "seen", "status"),
    [
        ([{"pid": 7, "status": 3}], {}, 3),
        ([{"pid": 7, "status": 3}], {7: 0}, 0),
        ([{"pid": 7, "generation": 2}], {7: -9}, 137),
        ([{"pid": 7, "status": 0}, {"pid": 8, "generation": 3}], {7: 0}, front.LOST),
        ([{"pid": 8, "generation": 3}, {"pid": 8, "status": 78}], {7: 0}, 78),
        ([], {}, front.LOST),
    ],
)
def test_the_front_ends_with_the_status_of_the_last_generation(words: list[dict], seen: dict[int, int], status: int):
    found = front.Front(-1, 7)
    for word in words:
        found.hear(word)
    found.seen = seen
    assert found.status() == status


def test_a_signal_for_a_generation_that_is_gone_is_its_status():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(10)
    found = front.Front(-1, gone.pid)
    found.pass_on(signal.SIGTERM, None)
    assert found.status() == 128 + signal.SIGTERM


def test_a_signal_is_not_sent_to_a_number_that_may_be_somebody_elses_by_now(monkeypatch):
    sent = []
    monkeypatch.setattr(front.os, "kill", lambda pid, signum: sent.append(pid))
    found = front.Front(-1, 7)
    found.seen = {7: -9}
    found.pass_on(signal.SIGTERM, None)
    assert sent == [] and found.status() == 137


def test_ctrl_c_before_it_serves_ends_it_without_a_traceback(monkeypatch, capfd):
    from comfy_env.orchestrator import __main__ as program

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "_start", interrupted)
    monkeypatch.setattr(program, "_log", lambda *given: None)
    assert program.main(["serve"]) == 130 and capfd.readouterr().err == ""


def test_the_first_process_waits_itself_where_the_interpreter_is_gone(monkeypatch):
    from comfy_env.orchestrator import __main__ as program

    def gone(*argv: object) -> None:
        raise FileNotFoundError("the interpreter")

    read, write = os.pipe()
    os.close(write)
    monkeypatch.setattr(program.os, "execv", gone)
    monkeypatch.setattr(program.front.Front, "run", lambda self: 42 if self.pid == 7 else 0)
    try:
        assert program.become_front(read, 7) == 42
    finally:
        os.close(read)
