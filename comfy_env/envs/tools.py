"""Programs run while building: asked with a limit, or run with their output kept, their progress told and a way to cancel."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from comfy_env.process import lifeline
from comfy_env.values import ExitStatus

TICK_SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    """What a program said. ``trouble`` is '' when it ended with status 0."""

    out: str = ""
    err: str = ""
    trouble: str = ""


def ask(
    argv: Sequence[object], seconds: float, env: Mapping[str, str] | None = None, cwd: Path | None = None, text: str = ""
) -> Answer:
    """Run a program to its end, or end it and all it started at the limit; never raises."""
    try:
        process = _start(argv, env, cwd, stderr=subprocess.PIPE, stdin=subprocess.PIPE)
    except OSError as error:
        return Answer(trouble=f"cannot be run: {error.strerror or error}")
    with process:
        try:
            out, err = process.communicate(text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return Answer(trouble=f"no answer within {seconds:g} s")
        finally:
            end_group(process)
    said = Answer(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    return Answer(said.out, said.err, "" if process.returncode == 0 else f"{_ended(process.returncode)}: {_gist(said.err or said.out)}")


def follow(
    argv: Sequence[object],
    hear: Callable[[str], None],
    tick: Callable[[], None],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program to its end and return what is wrong with that, '' for status 0.

    ``hear`` gets each line of its output, ``tick`` is called twice a second; an exception from either ends the program
    and everything in its group, and passes on.
    """
    with _lifeline() as tie:
        try:
            process = _start(argv, env, cwd, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, keep=tie)
        except OSError as error:
            return f"cannot be run: {error.strerror or error}"
        with process:
            try:
                _arm(tie, process.pid)
                _pump(process, hear, tick)
            finally:
                end_group(process)
    return "" if process.returncode == 0 else _ended(process.returncode)


@contextmanager
def _lifeline() -> Iterator[tuple[int, ...]]:
    """A pipe by which the kernel ends the program when this process dies: an orphan must not go on writing."""
    if not lifeline.works():
        yield ()
        return
    read, write = os.pipe()
    lifeline.keep_from_forks(write)
    try:
        yield (read,)
    finally:
        os.close(read)
        os.close(write)


def _arm(tie: tuple[int, ...], group: int) -> None:
    for fd in tie:
        with suppress(ProcessLookupError):   # it ended already
            lifeline.arm(fd, group)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a program's group and take its exit status."""
    with suppress(ProcessLookupError, PermissionError):   # nobody is left in it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(
    argv: Sequence[object], env: Mapping[str, str] | None, cwd: Path | None, stderr: int, stdin: int, keep: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(part) for part in argv],
        env=env, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True, pass_fds=keep,
    )


def _pump(process: subprocess.Popen[bytes], hear: Callable[[str], None], tick: Callable[[], None]) -> None:
    assert process.stdout is not None
    fd, lines, ticked = process.stdout.fileno(), _Lines(hear), time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            if selector.select(TICK_SECONDS):
                data = os.read(fd, 65536)
                lines.feed(data)
                if not data:
                    return
            elif _is_over(process):   # something it left running still holds the pipe
                return
            if time.monotonic() - ticked >= TICK_SECONDS:
                ticked = time.monotonic()
                tick()


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Lines:
    """Splits output into lines; a progress bar's carriage return ends one too, and an endless line is cut."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if self._rest and (not data or len(self._rest) > 65536):
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            if line.strip():
                self._hear(line.decode("utf-8", "replace").rstrip())


def _ended(code: int) -> str:
    return str(ExitStatus(signal=-code) if code < 0 else ExitStatus(code=code))


def _gist(text: str) -> str:
    """Return the line that matters most: the last of a traceback, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    return lines[-1] if any(line.startswith(("Traceback", "importing ")) for line in lines) else lines[0]
