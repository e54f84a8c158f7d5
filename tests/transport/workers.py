"""Starts real workers with a plain Popen, so that the wire is tested without the rest of the house."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import comfy_env.worker
from comfy_env.transport.boot import boot_document
from comfy_env.transport.endpoint import open_endpoint
from comfy_env.transport.handshake import join
from comfy_env.transport.session import Session, session_of
from comfy_env.values import EnvPlan, ExitStatus, Lanes, Launch

WORKER_FOLDER = Path(comfy_env.worker.__file__).parent
HERE = Path(__file__).parent


@functools.cache
def interpreter(version: str) -> str | None:
    """Return an interpreter of this version that really ran, or None."""
    names = [f"python{version}", *(str(p / "bin" / "python") for p in _pyenv_folders(version))]
    for name in names:
        found = shutil.which(name)
        if found and _version_of(found) == version:
            return found
    return None


def _pyenv_folders(version: str) -> list[Path]:
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return []
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True, timeout=20).stdout.strip()
    return sorted(Path(root, "versions").glob(f"{version}.*")) if root else []


def _version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):   # then it is none that counts
        return subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=20).stdout.strip()
    return ""


class PopenProcess:
    """A worker's process as the transport sees it."""

    def __init__(self, popen: subprocess.Popen) -> None:
        self.popen = popen
        self.pid = popen.pid
        self.outputs: tuple[int, ...] = ()
        self.data: Any = None
        self._handle = os.pidfd_open(popen.pid)

    def exit_handle(self) -> int | None:
        return self._handle

    def exit_status(self) -> ExitStatus | None:
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) if self.popen.returncode is None else None
        if self.popen.returncode is not None:
            code = self.popen.returncode
            return ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code)
        if ended is None:
            return None
        return ExitStatus(code=ended.si_status) if ended.si_code == os.CLD_EXITED else ExitStatus(signal=ended.si_status)

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait(20)
        os.close(self._handle)


@dataclass
class Started:
    """A worker that was started; ``lanes`` once it joined."""

    process: PopenProcess
    launch: Launch
    endpoint: Any
    stages: list[str] = field(default_factory=list)
    lanes: Lanes | None = None
    numbers: int = 0
    output: Callable[[], bytes] = bytes

    @property
    def session(self) -> Session:
        assert self.lanes is not None
        return session_of(self.lanes, self.process)

    def call(self, target: Any, *args: Any, **options: Any) -> Any:
        """Run a call and return its answer."""
        self.numbers += 1
        message = {"target": target, "args": args, "kwargs": options.pop("kwargs", {}), "node": None}
        return self.session.call(message, request=self.numbers, generation=self.launch.generation, **options)

    def value(self, target: Any, *args: Any, **options: Any) -> Any:
        """Run a call that must return, and return its value."""
        answer = self.call(target, *args, **options)
        assert answer.kind.name == "REPLY", answer
        return answer.value


def make_launch(endpoint: Any, python: str = sys.executable, sign: Callable[[str], None] = lambda stage: None, **more: Any) -> Launch:
    facts = {
        "env": "wire", "generation": 1, "plan": EnvPlan(key="wire"), "argv": (python, "-I", "-u", str(WORKER_FOLDER)), "cwd": HERE,
        "variables": dict(os.environ), "import_roots": (str(HERE / "pack"),), "run_folder": HERE, "worker_folder": WORKER_FOLDER,
        "nonce": secrets.token_hex(8), "host_nonce": "host", "endpoint": endpoint, "auth_key": secrets.token_bytes(32), "sign": sign,
    }
    return Launch(**{**facts, **more})


def spawn(argv: list[str], fds: tuple[int, ...], **more: Any) -> PopenProcess:
    return PopenProcess(subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True, **more))


@contextlib.contextmanager
def started(
    python: str = sys.executable, argv: list[str] | None = None, document: dict[str, Any] | None = None, **more: Any,
) -> Iterator[Started]:
    """Start a worker (or another program in its place) without joining it; it is ended afterwards."""
    endpoint = open_endpoint()
    stages: list[str] = []
    launch = make_launch(endpoint, python, sign=stages.append, **more)
    with tempfile.TemporaryFile() as output:
        endpoint.write_boot({**boot_document(launch, endpoint), **(document or {})})
        process = spawn(argv or [*launch.argv, "--boot", str(endpoint.boot_fd)], endpoint.child_fds, stderr=output, stdout=output)
        endpoint.child_started()
        worker = Started(process, launch, endpoint, stages, output=lambda: os.pread(output.fileno(), 1 << 20, 0))
        try:
            yield worker
        finally:
            process.end()
            endpoint.close()
            if worker.lanes is not None:
                worker.lanes.close()


@contextlib.contextmanager
def joined(python: str = sys.executable, **more: Any) -> Iterator[Started]:
    """Start a worker and join it."""
    with started(python, **more) as worker:
        worker.lanes = join(worker.endpoint, worker.process, worker.launch)
        yield worker


def until(true: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Return the first true value of a question; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = true()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError(f"not true within {seconds} s")
