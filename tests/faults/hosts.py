"""Hosts of their own, for faults that a test cannot have in its own process: killed, stopped, limited, without streams."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.ward import CODE, PACK

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
