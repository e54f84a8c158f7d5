"""Hosts of their own, for faults that a test cannot have in its own process: killed, stopped, limited, without streams."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from comfy_env.process import procs, sweep
from tests.faults.ward import CODE, PACK

PROMISED = 1.0   # seconds until a worker's whole group is gone

HEAD = f"""
import json, os, sys
from pathlib import Path
folder, arguments = Path(sys.argv[1]), sys.argv[2:]
CODE, PACK = {str(CODE)!r}, {str(PACK)!r}
SETTINGS = dict(runtime_folder=folder / "run", log_folder=folder / "logs", crash_limit=1000, crash_window=0.0, birth=30.0, spawn=20.0)

def make_pool(wrappers=(), **more):
    from comfy_env import WorkerPool
    from comfy_env.hooks import Registry
    from comfy_env.settings import Settings
    settings = Settings(**{{**SETTINGS, **more}})
    return WorkerPool(settings, registry=Registry(wrappers=wrappers, settings=settings))

def make_plan(key, **more):
    from comfy_env import EnvPlan
    return EnvPlan.existing(sys.executable, key, root=CODE, import_roots=(PACK,), **more)

def tell(**facts):
    with open(folder / "told.new", "w") as file:
        json.dump(facts, file)
    os.replace(folder / "told.new", folder / "told")

"""

BORN = """
import threading, time
from comfy_env.hooks import hookimpl

class Born:
    @hookimpl(wrapper=True)
    def comfy_env_spawn(self, launch):
        process = yield
        self.pid, self.nonce = process.pid, launch.host_nonce
        return process

def hold(pool, plan):
    note = folder / "note"
    threading.Thread(target=lambda: pool.call(plan, "jobs:hold_the_gil_with_a_grandchild", str(note)), daemon=True).start()
    return note

def held(pool, plan):
    note = hold(pool, plan)
    while not os.path.exists(f"{note}.ready"):
        time.sleep(0.005)
    return [int(word) for word in open(f"{note}.ready").read().split()]

"""
"""What a script may begin with: `Born` is a wrapper that knows the worker that was spawned last, `hold` asks a worker to answer
nobody, `held` waits until it does so and returns two numbers: its own and its child's.
"""


class Host:
    """A host that runs a test's script; `told` is the last thing it told."""

    def __init__(self, script: str, folder: Path, *arguments: object, prefix: tuple[str, ...] = (), **popen: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        program = folder / "host.py"
        program.write_text(HEAD + script, encoding="utf-8")
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        argv = [*prefix, sys.executable, str(program), str(folder), *map(str, arguments)]
        self.output = open(folder / "output", "w+b", buffering=0)
        streams = {"stdin": subprocess.DEVNULL, "stdout": self.output, "stderr": self.output}
        self.popen = subprocess.Popen(argv, **{"env": environ, **streams, **popen})

    @property
    def told(self) -> dict[str, Any] | None:
        path = self.folder / "told"
        return json.loads(path.read_text()) if path.exists() else None

    def said(self) -> str:
        return os.pread(self.output.fileno(), 1 << 16, 0).decode(errors="replace")

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self.output.close()


@contextlib.contextmanager
def hosts_of(script: str, folder: Path, eventually: Callable[..., Any], prepare: Callable[[Path], object] = lambda folder: None,
             seconds: float = 30.0) -> Iterator[Callable[[str], tuple[Host, dict[str, Any]]]]:
    """Give `host_in(mode)`: it starts a host of a script in a folder that was prepared, and returns it with what it told.

    In the end nobody of any of them is left, nor a child that they told as ``forked``.
    """
    hosts: list[Host] = []

    def begin(mode: str) -> tuple[Host, dict[str, Any]]:
        place = folder / f"host{len(hosts)}"
        prepare(place)
        hosts.append(Host(script, place, mode))
        told = eventually(lambda: hosts[-1].told or hosts[-1].popen.poll(), seconds, "the host told its numbers")
        assert isinstance(told, dict), hosts[-1].said()
        return hosts[-1], told

    try:
        yield begin
    finally:
        for host in hosts:
            told = host.told or {}
            host.close()
            for pid in {told.get("forked", 0), *(twins(told["host_nonce"]) if told else ())} - {0}:
                os.kill(pid, signal.SIGKILL)


def twins(host_nonce: str) -> list[int]:
    """Return every living process of any worker of a host."""
    entry = f"\0{procs.HOST_NONCE}={host_nonce}\0".encode()
    return [row.pid for row in procs.rows() if not row.dead and entry in b"\0" + procs.environment(row.pid)]


def sweep_finds(host: Host) -> list[object]:
    """Return whom the next host's sweep has to end or must leave alone, and what it leaves on disk."""
    runtime = host.folder / "run"
    report = sweep.sweep(runtime)
    return [*report.killed, *report.skipped, *runtime.glob("host-*"), *runtime.glob("new-*")]


def run_host(script: str, folder: Path, *arguments: object, shared_memory: str = "", seconds: float = 60.0, **more: Any) -> dict[str, Any]:
    """Run a script in a host of its own to its end and return what it told."""
    prefix = in_a_small_shared_memory(shared_memory) if shared_memory else ()
    host = Host(script, folder, *arguments, **{"prefix": prefix, **more})
    try:
        status = host.popen.wait(seconds)
        assert status == 0 and host.told is not None, f"the host ended with {status}:\n{host.said()}"
        return host.told
    finally:
        host.close()


def in_a_small_shared_memory(size: str) -> tuple[str, ...]:
    """Return what to put before a program so that its /dev/shm is of this size; nothing where that is not allowed."""
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", mount, "sh") if may_unshare("--mount") else ()


def may_unshare(*flags: str) -> bool:
    """Tell whether a new namespace can be had here."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", *flags, "true"], capture_output=True, timeout=20, check=False).returncode == 0
