"""What the tests of this room share: a plain endpoint, a launch of any program, and questions about processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from comfy_env.process import procs
from comfy_env.process.handle import LocalProcess
from comfy_env.process.launch import worker_variables
from comfy_env.process.rundir import HostRun
from comfy_env.values import EnvPlan, Launch


class PlainEndpoint:
    """A lifeline and no lanes. Without `tied` the child inherits the pipe, but the host does not know of it."""

    def __init__(self, tied: bool = True) -> None:
        self._read, self.lifeline_write = os.pipe()
        self.lifeline_read = self._read if tied else None
        self.child_fds = (self._read,)
        self.boot_fd = self._read
        self._open = {self._read, self.lifeline_write}

    def child_started(self) -> None:
        self._close(self._read)

    def close(self) -> None:
        self._close(self._read)
        self._close(self.lifeline_write)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)


def launch_of(host: HostRun, argv: tuple[str, ...], endpoint: PlainEndpoint, extra: Mapping[str, str] | None = None) -> Launch:
    """Return the launch of any program as a worker of a host."""
    plan = EnvPlan.existing(sys.executable, "kit", variables=dict(extra or {}))
    run = host.new_worker("kit", 1)
    return Launch(
        env="kit",
        generation=1,
        plan=plan,
        argv=argv,
        cwd=run.folder,
        variables=worker_variables(plan, nonce=run.nonce, host_nonce=host.nonce, generation=1),
        import_roots=(),
        run_folder=run.folder,
        worker_folder=host.worker_folder,
        nonce=run.nonce,
        host_nonce=host.nonce,
        endpoint=endpoint,
        auth_key=b"",
    )


def python(code: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-u", "-c", code, *map(str, arguments))


def running(pid: int) -> bool:
    """Whether anything of a process still runs; a zombie does not."""
    row = procs.row(pid)
    return row is not None and not row.dead


def shared_names() -> set[str]:
    """Return the names in shared memory, but for semaphores and temporary files, by which other programs come and go."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("sem.", "tmp"))}


def carriers(nonce: str) -> list[int]:
    return [row.pid for row in procs.rows() if not row.dead and procs.carries(row.pid, nonce)]


def read_all(process: LocalProcess, eventually, lines: int) -> list[str]:
    """Return the first lines of a worker's stdout as soon as there are so many."""
    got = bytearray()

    def enough() -> bool:
        try:
            got.extend(os.read(process.outputs[0], 65536))
        except BlockingIOError:
            return False
        return got.count(b"\n") >= lines

    eventually(enough, what=f"{lines} lines of output")
    return got.decode().splitlines()


def without(launch: Launch, *names: str) -> Launch:
    return replace(launch, variables={name: value for name, value in launch.variables.items() if name not in names})
