"""The smallest honest backend: it runs a pack in an interpreter that is already on this machine.

A plan that names an interpreter gets that one, a plan that asks for a Python version gets the first on the search path
that has it. Nothing is built, installed or changed, so a plan with dependencies is told to use another backend.

A backend is any object with five hooks; here the object is this module.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from comfy_env import hookimpl
from comfy_env.process import launch as starting
from comfy_env.process import tree
from comfy_env.transport import commands, handshake
from comfy_env.values import Canary, EnvPlan, EnvState, EnvStatus, Killed, Lanes, Launch, Process, Proof, Released, Want

capabilities = frozenset({"own_process", "survives_crash", "killable", "own_dependencies", "passes_descriptors"})
"""What this backend keeps; comfy_env.testing.conformance tests each of these."""

KILL_SECONDS = 2.0
MINORS = range(9, 15)


# ---- the worker's life: five verbs

@hookimpl
def comfy_env_spawn(launch: Launch) -> Process:
    """Start the program of the launch: `launch.argv` begins with the interpreter that `comfy_env_inspect` chose."""
    return starting.start(launch)


@hookimpl
def comfy_env_transport(process: Process, launch: Launch) -> Lanes:
    """Join the two lanes the worker inherited, watching that it lives meanwhile."""
    return handshake.join(launch.endpoint, process, launch)


@hookimpl
def comfy_env_verify(process: Process, lanes: Lanes, canary: Canary) -> Proof:
    """Bring back the evidence; whether the worker is trusted is the core's to judge."""
    return commands.verify(process, lanes, canary)


@hookimpl
def comfy_env_release(process: Process, lanes: Lanes, want: Want) -> Released:
    """Ask the worker for memory and return the receipt it measured."""
    return commands.release(process, lanes, want)


@hookimpl
def comfy_env_kill(process: Process, reason: str, replaced: bool) -> Killed:
    """End the worker with everything it started; harmless when it is already gone."""
    return tree.end(process, nonce=process.nonce, deadline_seconds=KILL_SECONDS)  # type: ignore[attr-defined]


# ---- the environment: one optional hook that chooses the interpreter

@hookimpl
def comfy_env_inspect(plan: EnvPlan, probe: bool) -> EnvState:
    """Return the interpreter a worker is started with, or why there is none."""
    if plan.dependencies or plan.conda:
        return EnvState(plan.key, EnvStatus.BROKEN, reason="this backend installs nothing", fix='set backend = "venv" in the plan')
    found = plan.interpreter or _interpreter(plan.python)
    if found is None:
        reason = f"no Python {plan.python} on the search path"
        return EnvState(plan.key, EnvStatus.MISSING, reason=reason, fix=f"install Python {plan.python}")
    if probe and not _version(found):
        return EnvState(plan.key, EnvStatus.BROKEN, found, reason=f"{found} does not run")
    return EnvState(plan.key, EnvStatus.READY, found)


def _interpreter(wanted: str | None) -> Path | None:
    """Return the first interpreter of the search path that has a wanted version; this one where none is wanted."""
    if not wanted:
        return Path(sys.executable)
    accepts = SpecifierSet(wanted if wanted[0] in "<>=!~" else f"=={wanted}.*")
    minors = [f"3.{minor}" for minor in MINORS if any(accepts.contains(f"3.{minor}.{patch}") for patch in range(40))]
    found = [Path(path) for minor in minors if (path := shutil.which(f"python{minor}"))]
    return next((path for path in found if (version := _version(path)) and accepts.contains(version)), None)


def _version(interpreter: Path) -> Version | None:
    """Return an interpreter's version, None if it does not run; asked once for each state of its file."""
    return _run(interpreter, interpreter.stat().st_mtime_ns) if interpreter.exists() else None


@functools.cache
def _run(interpreter: Path, mtime: int) -> Version | None:
    ask = [str(interpreter), "-I", "-c", "import platform; print(platform.python_version())"]
    try:
        return Version(subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True).stdout.strip())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
