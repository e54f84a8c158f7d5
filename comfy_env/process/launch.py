"""Starting a worker: its environment variables, its record, its own session and group, its output pipes, its lifeline."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from comfy_env import errors
from comfy_env.process import lifeline, lifeline_shell, procs, records, variables
from comfy_env.process.handle import LocalProcess
from comfy_env.process.tree import end
from comfy_env.values import EnvPlan, Launch

log = logging.getLogger(__name__)
_NOT_A_PROGRAM = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)


def command(interpreter: str | Path, worker_folder: str | Path, boot_fd: int) -> tuple[str, ...]:
    """Return the program line of a worker: isolated from variables and user site, unbuffered, run from a folder."""
    return (str(interpreter), "-I", "-u", str(worker_folder), "--boot", str(boot_fd))


def host_environment() -> dict[str, str]:
    """Return this host's own variables, as any program it starts would inherit them."""
    return dict(os.environ)


def worker_variables(
    plan: EnvPlan, environ: Mapping[str, str] | None = None, *, nonce: str, host_nonce: str, generation: int
) -> dict[str, str]:
    """Return the whole environment of a plan's worker, from this host's own where none is given."""
    host = os.environ if environ is None else environ
    return variables.select(plan, host, nonce=nonce, host_nonce=host_nonce, generation=generation)


def start(launch: Launch) -> LocalProcess:
    """Start a worker's process and return it without waiting for it.

    It leads its own session and group, reads from /dev/null, writes into two pipes, inherits the endpoint's
    descriptors and no others, and ends with this host from here on. It is forked where the launch has a forker that does.
    Raises `InterpreterMissing`, or `SpawnFailed` where the system refuses.
    """
    forked = launch.forker.fork(launch) if launch.forker is not None else None
    return forked if isinstance(forked, LocalProcess) else begin(launch)


def begin(launch: Launch, way: Way | None = None) -> LocalProcess:
    """Start a launch's process one way; see `start`."""
    try:
        return _start(launch, way or Way(_spawn, LocalProcess))
    except errors.SpawnFailed:
        raise
    except OSError as error:
        raise _refused(launch, str(error), "see what this process has too many of, or what is full") from error


@dataclass(frozen=True)
class Way:
    """How a process comes to be: ``spawn`` starts it and returns its number, ``own`` takes it into the host's hand.

    ``zygote`` is the nonce of the process that forks it, '' for none.
    """

    spawn: Callable[[Launch, str, tuple[int, int]], int]
    own: Callable[..., LocalProcess]
    zygote: str = ""


def _start(launch: Launch, way: Way) -> LocalProcess:
    program = _program(launch)
    _check_descriptors(launch)
    _write_record(launch, program, way.zygote)
    with contextlib.ExitStack() as undo:
        outputs, theirs = _pipes(undo)
        pid = way.spawn(launch, program, theirs)
        undo.pop_all()
    for fd in theirs:
        os.close(fd)
    return _own(launch, pid, outputs, way.own)


def _program(launch: Launch) -> str:
    """Return the absolute path of the program, or raise InterpreterMissing."""
    wanted = launch.interpreter
    found = wanted if os.sep in wanted else shutil.which(wanted, path=launch.variables.get("PATH", os.defpath))
    if found and os.path.isdir(found):
        _missing(launch, f"{wanted} is a folder and no interpreter")
    if not found or not os.path.isfile(found):
        _missing(launch, f"the interpreter {wanted} is not there")
    if not os.access(found, os.X_OK):
        _missing(launch, f"the interpreter {wanted} cannot be executed")
    return os.path.abspath(found)


def _missing(launch: Launch, message: str) -> NoReturn:
    raise errors.InterpreterMissing(
        message, env=launch.env, generation=launch.generation, hint="build the environment again, or name another interpreter in its plan"
    )


def _refused(launch: Launch, what: str, hint: str = "") -> errors.SpawnFailed:
    return errors.SpawnFailed(f"the worker could not be started: {what}", env=launch.env, generation=launch.generation, hint=hint)


def _check_descriptors(launch: Launch) -> None:
    """Refuse lanes and lifelines that a host with closed standard streams got as 0, 1 or 2: its prints would go there."""
    ends = (*launch.endpoint.child_fds, getattr(launch.endpoint, "lifeline_write", None))
    if any(fd is not None and 0 <= fd <= 2 for fd in ends):
        raise _refused(launch, "its endpoint has the number of a standard stream", "open standard input and output before")


def _write_record(launch: Launch, program: str, zygote: str) -> None:
    expected = records.expected(
        nonce=launch.nonce, host_nonce=launch.host_nonce, env=launch.env, generation=launch.generation, exe=program, zygote=zygote
    )
    try:
        records.write(launch.run_folder, expected)
    except OSError as error:
        raise _refused(launch, f"its record cannot be written: {error}", "set COMFY_ENV_RUNTIME to a folder with space") from error


def _pipes(undo: contextlib.ExitStack) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the read ends, which never block, and the write ends of two pipes."""
    reads: list[int] = []
    writes: list[int] = []
    for _ in range(2):
        for fd, ends in zip(os.pipe(), (reads, writes), strict=True):
            ends.append(fd)
            undo.callback(os.close, fd)
        os.set_blocking(reads[-1], False)
    return (reads[0], reads[1]), (writes[0], writes[1])


def _spawn(launch: Launch, program: str, outputs: tuple[int, int]) -> int:
    try:
        child = subprocess.Popen(
            (program, *launch.argv[1:]),
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            cwd=str(launch.cwd),
            env=variables_of(launch, program),
            start_new_session=True,
            close_fds=True,
            pass_fds=launch.endpoint.child_fds,
        )
    except (OSError, ValueError) as error:
        raise _why_not(launch, program, error) from error
    child.returncode = 0  # this object must never collect the process: the one kill does, when the tree is empty
    return child.pid


def variables_of(launch: Launch, program: str) -> dict[str, str]:
    """Return the launch's variables; the marks that descendants are known by stay, whatever a wrapper changed."""
    marks = {procs.NONCE: launch.nonce, procs.HOST_NONCE: launch.host_nonce}
    return {**variables.with_tools_of(program, launch.variables), **marks}


def _why_not(launch: Launch, program: str, error: OSError | ValueError) -> errors.SpawnFailed:
    if isinstance(error, ValueError) or error.filename == str(launch.cwd):
        return _refused(launch, str(error))
    if error.errno in _NOT_A_PROGRAM:
        message = f"the interpreter {program} cannot be executed: {error.strerror}"
        return errors.InterpreterMissing(message, env=launch.env, generation=launch.generation, hint="build the environment again")
    return _refused(launch, str(error))


def _own(launch: Launch, pid: int, outputs: tuple[int, int], own: Callable[..., LocalProcess]) -> LocalProcess:
    """Take a started child into the host's hand; where that fails it is ended."""
    with contextlib.ExitStack() as undo:
        undo.callback(_end_unowned, pid, outputs)
        process = own(
            pid, outputs, nonce=launch.nonce, env=launch.env, generation=launch.generation, run_folder=launch.run_folder
        )
        undo.pop_all()
        undo.callback(process.close)
        undo.callback(end, process, nonce=launch.nonce)
        _tie_to_host(launch, pid)
        launch.endpoint.child_started()
        records.add_process(launch.run_folder, pid=pid, pgid=pid, started=process.started)
        undo.pop_all()
    return process


def _end_unowned(pid: int, outputs: tuple[int, int]) -> None:
    """End a child for which no handle could be had: no descriptors are left."""
    os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    for fd in outputs:
        os.close(fd)


def _tie_to_host(launch: Launch, pid: int) -> None:
    """Arm the lifeline: by the kernel where that works, else by a shell. A worker that ended already needs none."""
    read_end = getattr(launch.endpoint, "lifeline_read", None)
    write_end = getattr(launch.endpoint, "lifeline_write", None)
    if read_end is None:
        log.debug("the worker of %s has no lifeline", launch.env)
        return
    if write_end is not None:
        lifeline.keep_from_forks(write_end)
    if lifeline.works():
        with contextlib.suppress(ProcessLookupError):
            lifeline.arm(read_end, pid)
    else:
        lifeline_shell.start(read_end, pid, launch.nonce, launch.host_nonce)
