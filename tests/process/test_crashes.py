"""The crash pipe: what is told in it is believed of a process that is seen to end, and of no other."""

import os
import signal
import time

import pytest

from comfy_env.process import crashes, procs
from comfy_env.process.crashes import CrashPipe
from comfy_env.process.output import Output
from tests.nights import night_in

TOLD = b'Fatal Python error: Bus error\n\nCurrent thread 0x00007f (most recent call first):\n  File "a.py", line 3 in deep\n'
NOISE = b'Thread 0x01 (most recent call first):\n  File "b.py", line 1 in other\nmore\n'


class End:
    """A pipe, its pack's end, and whether the process is seen to end."""

    def __init__(self):
        read, self.write = os.pipe()
        os.set_blocking(read, False)
        self.said = []
        self.doomed = False
        self.asked = 0
        self.pipe = CrashPipe(read, Output("env", sink=self.said.append), self._is_doomed)

    def _is_doomed(self):
        self.asked += 1
        return self.doomed

    def says(self, text):
        os.write(self.write, text)
        return self.pipe.look()

    def hangs_up(self):
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self):
        self.hangs_up()
        self.pipe.close()


@pytest.fixture
def end():
    end = End()
    yield end
    end.close()


def test_a_crash_is_told_by_its_signal_with_its_stack(end):
    end.doomed = True
    crash = end.says(NOISE + TOLD)
    assert crash.status.signal == signal.SIGBUS
    assert crash.stack == 'Current thread 0x00007f (most recent call first):\n  File "a.py", line 3 in deep'
    assert end.said == (NOISE + TOLD).decode().splitlines(), "its log has it all"
    assert end.pipe.look() == crash and end.pipe.fileno() == -1, "told once and for all"


def test_a_stack_that_is_written_in_pieces_is_told_whole(end):
    pieces = [TOLD[:22], TOLD[22:60], TOLD[60:]]
    assert end.says(pieces[0]) is None and end.asked == 0

    def goes_on():
        if pieces[1:]:
            os.write(end.write, pieces.pop(1))
        end.doomed = not pieces[1:]
        return end.doomed

    end.pipe._doomed = goes_on
    os.write(end.write, pieces.pop(1))
    assert end.pipe.look().stack.endswith("in deep")


def test_what_is_told_of_a_process_that_goes_on_is_not_believed_twice(end, monkeypatch):
    monkeypatch.setattr(crashes, "PATIENCE", 0.01)
    assert end.says(TOLD) is None and end.pipe.fileno() == -1
    end.doomed = True
    assert end.says(TOLD) is None, "whoever lied once is told by its exit"


def test_a_crash_is_believed_although_the_host_slept_before_its_process_was_seen_to_end(end, monkeypatch):
    end.pipe._doomed = night_in(monkeypatch, "process.crashes").in_first(lambda: True)
    assert end.says(TOLD).status.signal == signal.SIGBUS


def test_other_words_are_logged_and_end_nothing(end):
    assert end.says(b"Fatal Python error: something else\nhello\n") is None
    assert end.pipe.fileno() >= 0 and end.asked == 0 and end.said[-1] == "hello"


def test_a_pipe_that_nobody_can_write_into_any_more_is_not_waited_on(end):
    end.hangs_up()
    assert end.pipe.look() is None and end.pipe.fileno() == -1


def test_a_closed_pipe_is_not_read():
    end = End()
    end.close()
    end.pipe.close()
    assert end.pipe.look() is None


def test_a_process_is_doomed_from_its_fatal_signal_on(start, eventually):
    process = start("import time\ntime.sleep(60)")
    assert not procs.doomed(process.pid)
    os.kill(process.pid, signal.SIGSEGV)
    eventually(lambda: procs.doomed(process.pid))
    assert not procs.doomed(0) and not procs.doomed(os.getpid())


def test_a_look_at_an_unbelievable_crash_takes_no_longer_than_its_patience(end):
    began = time.monotonic()
    assert end.says(TOLD) is None
    assert time.monotonic() - began < 10 * crashes.PATIENCE
