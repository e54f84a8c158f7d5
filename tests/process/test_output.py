"""Draining: nothing a worker writes blocks it, fills the host's memory, or breaks the host; its last words are kept."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfy_env.process.lines import MOST_CHARACTERS
from comfy_env.process.logfile import LogFile
from comfy_env.process.output import Output

DUMP = """Current thread 0x00007f0000000001 (most recent call first):
  File "/p/nodes.py", line 7 in render
  File "/p/nodes.py", line 9 in run

Thread 0x00007f0000000002 (most recent call first):
  File "/w/side.py", line 3 in serve
"""


class Pipe:
    """A pipe that is written by the test and fed to an output."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)

    def put(self, data: bytes | str) -> None:
        os.write(self.write, data.encode() if isinstance(data, str) else data)

    def end(self) -> None:
        if self.write >= 0:
            os.close(self.write)
            self.write = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.end()
    os.close(made.read)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def output(lines) -> Output:
    return Output("pack-a", 1, sink=lines.append)


def told(pipe: Pipe, output: Output, data: bytes | str) -> bool:
    pipe.put(data)
    return output.feed(pipe.read)


def test_lines_are_told_as_they_end_and_an_unfinished_one_is_among_the_last_words(pipe, output, lines):
    assert told(pipe, output, "one\ntwo\nthr") is True
    assert lines == ["one", "two"] and output.tail() == ("one", "two", "thr")


def test_at_the_end_of_the_stream_the_unfinished_line_is_told_and_feed_says_so(pipe, output, lines):
    told(pipe, output, "last words")
    pipe.end()
    assert output.feed(pipe.read) is False
    assert lines == ["last words"] and output.tail() == ("last words",)


def test_the_last_forty_lines_are_kept(pipe, output):
    told(pipe, output, "".join(f"{n}\n" for n in range(100)))
    assert output.tail() == tuple(str(n) for n in range(60, 100))


@pytest.mark.row("X7")
def test_a_character_cut_in_two_by_a_read_is_whole(pipe, output, lines):
    both = "ä\n".encode()
    told(pipe, output, both[:1])
    told(pipe, output, both[1:])
    assert lines == ["ä"]


@pytest.mark.row("X7")
def test_bytes_that_are_no_text_and_nuls_are_replaced(pipe, output, lines):
    told(pipe, output, b"a\xff\xfeb\0c\x07\x1b[1m\td\n")
    assert lines == ["a��b�c�\x1b[1m\td"]


def test_a_progress_bar_is_one_line_that_shows_its_last_state(pipe, output, lines):
    for percent in range(0, 101, 10):
        told(pipe, output, f"\r{percent}%|##")
    assert output.tail() == ("100%|##",)
    told(pipe, output, "\nnext\r\n")
    assert lines == ["100%|##", "next"]


@pytest.mark.row("X7")
def test_ten_megabytes_without_a_newline_keep_their_beginning_and_are_counted(pipe, output, lines):
    size = 10 * 2**20
    writer = threading.Thread(target=lambda: [pipe.put(b"x" * 65536) for _ in range(size // 65536)])
    writer.start()
    while writer.is_alive():
        output.feed(pipe.read)
    writer.join()
    output.feed(pipe.read)   # its last write may have filled the pipe since the last look
    told(pipe, output, "\n")
    (line,) = lines
    assert line.startswith("x" * MOST_CHARACTERS) and line.endswith(f"({size - MOST_CHARACTERS} more characters)")


def test_two_streams_do_not_mix_within_a_line(pipe, output, lines):
    other = Pipe()
    told(pipe, output, "out ")
    told(other, output, "error\n")
    told(pipe, output, "put\n")
    other.end()
    assert output.feed(other.read) is False
    os.close(other.read)
    assert lines == ["error", "out put"]


def test_lines_reach_the_log_with_the_environment_in_front(pipe, caplog):
    with caplog.at_level(logging.INFO, "comfy_env.worker"):
        told(pipe, Output("pack-a"), "hello\n")
    assert caplog.messages == ["[pack-a] hello"]


def test_a_log_that_raises_is_told_of_once_and_stops_nothing(pipe, caplog):
    def broken(line: str) -> None:
        raise ValueError("I/O operation on closed file")

    output = Output("pack-a", sink=broken)
    told(pipe, output, "a\nb\n")
    assert output.tail() == ("a", "b")
    assert sum("cannot be told" in message for message in caplog.messages) == 1


def test_a_stack_is_recognised_between_other_lines_and_is_not_among_the_last_words(pipe, output, lines):
    told(pipe, output, "before\n" + DUMP[:100])
    told(pipe, output, DUMP[100:] + "after\n")
    assert output.stack_text() == DUMP.strip()
    assert output.tail() == ("before", "after")
    assert DUMP.splitlines()[1] in lines  # it still reaches the log


def test_the_stack_of_a_worker_that_collects_garbage_is_whole(pipe, output):
    dump = DUMP.replace("first):\n", "first):\n  Garbage-collecting\n", 1)
    told(pipe, output, dump + "after\n")
    assert output.stack_text() == dump.strip() and output.tail() == ("after",)


def test_the_newest_stack_wins_even_right_after_another(pipe, output):
    told(pipe, output, DUMP + DUMP.replace("render", "upscale"))
    assert output.stack_text() == DUMP.replace("render", "upscale").strip()


def test_a_fatal_errors_headline_is_among_the_last_words_and_its_stack_is_kept(pipe, output):
    told(pipe, output, DUMP + "Fatal Python error: Segmentation fault\n\n")
    told(pipe, output, DUMP.replace("render", "crash") + "\nExtension modules: numpy\n")
    assert "crash" in output.stack_text() and "render" not in output.stack_text()
    assert output.tail() == ("Fatal Python error: Segmentation fault", "", "Extension modules: numpy")


def test_lines_that_only_look_like_frames_are_ordinary_lines(pipe, output):
    told(pipe, output, '  File "x.py", line 1 in y\n\n')
    assert output.stack_text() == "" and output.tail() == ('  File "x.py", line 1 in y', "")


def drained(process, output: Output, eventually: Callable) -> None:
    open_fds = set(process.outputs)

    def all_ended() -> bool:
        open_fds.difference_update([fd for fd in open_fds if not output.feed(fd)])
        return not open_fds

    eventually(all_ended, seconds=60)


@pytest.mark.row("X7")
def test_a_worker_that_writes_from_python_and_c_is_never_blocked(start, output, lines, eventually):
    process = start(
        "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\nfor n in range(10000):\n    print('line', n)\n"
        "libc.puts(b'from C')\nlibc.fflush(None)\nos.write(2, b'raw ' * 50000 + b'\\n')\nos._exit(0)"
    )
    drained(process, output, eventually)
    assert [line for line in lines if line.startswith("line")] == [f"line {n}" for n in range(10000)]
    assert "from C" in lines and any(line.startswith("raw raw") for line in lines)
    assert eventually(process.exit_status).code == 0


def test_a_crash_shows_the_real_stack_of_a_real_interpreter(start, output, eventually):
    process = start("import faulthandler; faulthandler.enable()\ndef in_a_node():\n    faulthandler._sigsegv()\nin_a_node()")
    drained(process, output, eventually)
    assert "in in_a_node" in output.stack_text()
    assert "Fatal Python error: Segmentation fault" in output.tail()


def test_the_log_file_is_private_and_turned_over(tmp_path):
    path = tmp_path / "logs" / "pack-a.log"
    file = LogFile(path, most_bytes=100)
    for n in range(40):
        file.write(f"line {n:04}\n")
    file.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["pack-a.log", "pack-a.log.1", "pack-a.log.2"]
    assert all(p.stat().st_size <= 100 and p.stat().st_mode & 0o777 == 0o600 for p in path.parent.iterdir())
    assert path.read_text().endswith("line 0039\n")


def test_everything_a_worker_said_is_in_its_log_file(pipe, tmp_path, lines):
    output = Output("pack-a", 1, tmp_path / "a.log", sink=lines.append)
    told(pipe, output, "a\nb")
    output.close()
    output.close()
    assert (tmp_path / "a.log").read_text() == "a\nb\n"


@pytest.mark.row("X7")
def test_a_full_disk_is_told_once_and_stops_nothing(pipe, lines, caplog):
    mode = Path("/dev/full").stat().st_mode & 0o777
    output = Output("pack-a", 1, Path("/dev/full"), sink=lines.append)
    told(pipe, output, "a\n")
    told(pipe, output, "b\n")
    assert lines == ["a", "b"] and Path("/dev/full").stat().st_mode & 0o777 == mode
    assert sum("takes nothing more" in message for message in caplog.messages) == 1
