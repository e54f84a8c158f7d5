"""`comfy-env ps`, `story` and `sweep`: workers of other processes, from what their hosts wrote down."""

from __future__ import annotations

import argparse
import difflib
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from comfy_env.cli.exits import Exit, NotThere
from comfy_env.cli.journals import Tale, hosts, runtime_folder, tales
from comfy_env.cli.screen import Screen, in_bytes, in_time
from comfy_env.process.sweep import SweepReport
from comfy_env.process.sweep import sweep as swept
from comfy_env.settings import Settings

HEADS = ("HOST", "ENV", "GEN", "STATE", "PID", "PYTHON", "HELD", "CALLS", "AGE")


def ps(options: argparse.Namespace, screen: Screen) -> Exit:
    """Show the workers of every host that runs."""
    living = [host for host in hosts(runtime_folder(Settings.read())) if host.alive]
    screen.document({"hosts": [{"pid": host.pid, "written": host.written, "envs": host.envs} for host in living]})
    screen.table(HEADS, [_row(host.pid, entry) for host in living for entry in host.envs], empty="no host of this user runs workers")
    return Exit.DONE


def _row(host: int, entry: dict[str, Any]) -> tuple[Any, ...]:
    born = entry.get("born")
    age = in_time(max(0.0, time.time() - born)) if born else ""
    known = (entry.get(name) for name in ("key", "generation", "state", "pid", "python"))
    return (host, *known, in_bytes(entry.get("held")), entry.get("calls"), age)


def story(options: argparse.Namespace, screen: Screen) -> Exit:
    """Tell an environment's life, or list the environments that have one."""
    known = tales(runtime_folder(Settings.read()))
    if options.env is None:
        screen.document({"stories": [{"key": tale.key, "told": tale.told, "host": tale.pid, "alive": tale.alive} for tale in known]})
        screen.table(("ENV", "TOLD BY", "LINES"), [(tale.key, _teller(tale), len(tale.lines)) for tale in known], empty="no stories yet")
        return Exit.DONE
    wanted = [tale for tale in known if tale.key == options.env]
    if not wanted:
        raise _unknown(options.env, sorted({tale.key for tale in known}))
    screen.document({"env": options.env, "stories": [asdict(tale) for tale in wanted]})
    for tale in wanted:
        screen.say(f"env {tale.key}, told by {_teller(tale)}", *(f"  {line}" for line in tale.lines))
    return Exit.DONE


def _teller(tale: Tale) -> str:
    ago = f"{in_time(max(0.0, time.time() - tale.told))} ago"
    if tale.pid is None:
        return f"a host that closed {ago}"
    return f"host {tale.pid} {ago}" if tale.alive else f"host {tale.pid}, which died; last written {ago}"


def _unknown(key: str, known: list[str]) -> NotThere:
    near = difflib.get_close_matches(key, known, 1)
    listed = f"there are {', '.join(known)}" if known else "no pool of this user has started a worker yet"
    return NotThere(f"there is no story of an environment {key!r}; {listed}", hint=f"did you mean {near[0]!r}?" if near else "")


def sweep(options: argparse.Namespace, screen: Screen) -> Exit:
    """End what dead hosts left behind and remove their litter; ends with 4 if something had to be left alone."""
    report = swept(Settings.read().runtime_folder, dry_run=options.dry_run)
    screen.document({"dry_run": options.dry_run, **asdict(report)})
    screen.table(("WHAT", "WHICH", "WHY NOT"), _swept_rows(report, options.dry_run), empty="nothing was left behind")
    return Exit.NOT_READY if report.skipped else Exit.DONE


def _swept_rows(report: SweepReport, dry_run: bool) -> Iterator[tuple[str, Any, str]]:
    would = "would be " if dry_run else ""
    yield from ((f"{would}ended", pid, "") for pid in report.killed)
    yield from ((f"{would}collected", pid, "") for pid in report.reaped)
    yield from ((f"{would}removed", path, "") for path in report.removed)
    yield from (("left alone", path, why) for path, why in report.skipped)
