"""`comfy-env doctor`: a row of checks, each with what to do about it; the last one starts a worker and sees it work."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import NamedTuple

from comfy_env import __version__
from comfy_env.backends import uv
from comfy_env.backends.pixi import providers
from comfy_env.cli.backends import described
from comfy_env.cli.choose import refusal
from comfy_env.cli.exits import Exit
from comfy_env.cli.journals import hosts, runtime_folder
from comfy_env.cli.screen import Screen
from comfy_env.cli.strangers import unknown_variables
from comfy_env.envs.interpreters import find as find_interpreter
from comfy_env.errors import ComfyEnvError
from comfy_env.hooks import Registry
from comfy_env.packs.pythons import FLOOR
from comfy_env.pool import WorkerPool
from comfy_env.process import lifeline, rundir
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

OK, WARNING, PROBLEM = "ok", "warning", "problem"
LEAST_FREE = 64 << 20  # bytes: copies of the worker, logs and journals need some
NEWEST_KNOWN = 14
MARKER = "comfy-env-contract"


class Finding(NamedTuple):
    """What one check found; ``fix`` is the next step."""

    check: str
    verdict: str
    text: str
    fix: str = ""


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Run the checks; ends with 4 if one found a problem."""
    checks = CHECKS if options.quick else (*CHECKS, worker)
    findings = [finding for check in checks for finding in _asked(check)]
    screen.document({"findings": [finding._asdict() for finding in findings]})
    screen.table(("CHECK", "VERDICT", "WHAT", "NEXT"), findings)
    return Exit.NOT_READY if any(finding.verdict == PROBLEM for finding in findings) else Exit.DONE


def _asked(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except (ComfyEnvError, OSError) as error:
        return [Finding(check.__name__, PROBLEM, refusal(error), getattr(error, "hint", ""))]


def python() -> Iterator[Finding]:
    yield Finding("python", OK, f"{platform.python_version()} at {sys.executable}")


def system() -> Iterator[Finding]:
    proven = sys.platform.startswith("linux")
    yield Finding("system", OK if proven else WARNING, f"{platform.system()} {platform.release()}" + ("" if proven else ": not proven yet"))


def package(name: str = "comfy-env") -> Iterator[Finding]:
    """Tell our distribution from the unrelated one of the same name."""
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        yield Finding("package", WARNING, f"comfy_env {__version__} runs from a folder, not installed", "python -m pip install -e .")
        return
    if MARKER in (about["Keywords"] or ""):
        yield Finding("package", OK, f"comfy-env {about['Version']}")
    else:
        yield Finding("package", PROBLEM, f"the installed comfy-env {about['Version']} is another project's",
                      f"python -m pip uninstall {name}, then install this one from its checkout")


def settings() -> Iterator[Finding]:
    changed = [name for name, value in asdict(Settings.read()).items() if value != getattr(Settings(), name)]
    yield Finding("settings", OK, f"changed: {', '.join(changed)}" if changed else "all at their defaults")


def variables() -> Iterator[Finding]:
    """Name the variables that look like settings and are none."""
    for name, hint in unknown_variables():
        yield Finding("variable", WARNING, f"{name} is set, but it is no setting", hint)


def run_folder() -> Iterator[Finding]:
    folder = rundir.private_folder(runtime_folder(Settings.read()))
    free = shutil.disk_usage(folder).free
    dead = sum(not host.alive for host in hosts(folder))
    tight = free < LEAST_FREE
    yield Finding("run folder", PROBLEM if tight else OK, f"{folder}, {free >> 20} MiB free", "make room" if tight else "")
    if dead:
        yield Finding("dead hosts", WARNING, f"{dead} left something behind", "comfy-env sweep")


def interpreters() -> Iterator[Finding]:
    """Name the Pythons that really run here, by minor version."""
    found = (find_interpreter(EnvPlan(key="doctor", python=f"3.{minor}"))[0] for minor in range(FLOOR, NEWEST_KNOWN + 1))
    versions = [each.version for each in found if each is not None]
    yield Finding("interpreters", OK, f"Pythons that answer: {', '.join(versions)}")


def installers() -> Iterator[Finding]:
    found = uv.find(Settings.read())
    if found:
        yield Finding("uv", OK, f"{found[1]} at {found[0]}")
    else:
        yield Finding("uv", WARNING, "not found: environments are built with venv and pip, more slowly", "python -m pip install uv")
    provider, why = providers.find(EnvPlan(key="doctor"), Settings.read())
    if provider:
        yield Finding("pixi", OK, f"conda environments are made by {provider} ({provider.path})")
    else:
        yield Finding("pixi", OK, f"{'; '.join(why)}; no py-rattler either: only conda environments need one of them")


def host_death() -> Iterator[Finding]:
    if lifeline.works():
        yield Finding("lifeline", OK, "the kernel ends workers when the host dies")
    else:
        yield Finding("lifeline", WARNING, "the kernel's lifeline does not work here; a small shell per worker takes its place")


def backends() -> Iterator[Finding]:
    registry = Registry()
    for one in (described(registry, name) for name in registry.names()):
        verdict = PROBLEM if one["problem"] else OK
        yield Finding(f"backend {one['name']}", verdict, one["problem"] or f"from {', '.join(one['owners'])}")


def worker() -> Iterator[Finding]:
    """Start a worker of this very interpreter and have it answer."""
    begun = time.monotonic()
    with WorkerPool() as pool:
        answer = pool.call(EnvPlan.existing(sys.executable, "doctor"), "platform:python_version")
    right = answer == platform.python_version()
    yield Finding("worker", OK if right else PROBLEM, f"Python {answer} answered after {time.monotonic() - begun:.2f} s")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python, system, package, settings, variables, run_folder, interpreters, installers, host_death, backends,
)
