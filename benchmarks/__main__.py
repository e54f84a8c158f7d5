"""Measures this package and its peers side by side, and writes the figures as JSON, a table and a picture.

    python -m benchmarks                                     everyone, every row, five rounds
    python -m benchmarks --only comfy_env --rows noop        a quick look: one package, one row, no other venv
    python -m benchmarks --rows segv,stop --rounds 2 --add   two more rounds of some rows, added to the last results

Peers are installed into venvs of their own outside the tree; COMFY_ENV_BENCH_VENVS names another folder for them. A full run takes
most of an hour on two quiet cores. `python -m benchmarks.page` then writes docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import peers, picture, results, rows, running, table, venvs

OUT = Path(__file__).resolve().parent / "out"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the peers to measure, comma-separated; everyone by default")
    parser.add_argument("--rows", default="", help="rows or beginnings of their names, comma-separated; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the order within the rounds")
    parser.add_argument("--add", action="store_true", help="add the rounds to the results that are there, instead of replacing them")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of results.json, results.md and results.png")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    given = arguments(words)
    wanted = peers.named(given.only) if given.only else list(peers.PEERS)
    jobs = rows.chosen(given.rows)
    told = installed(wanted, jobs)
    ready = [key for key, facts in told.items() if "missing" not in facts]
    running.warm_up(jobs, ready)
    keeper = Keeper(given, jobs, told, results.load(given.out / "results.json") if given.add else None)
    keeper.write(running.measure(jobs, ready, given.rounds, given.seed, keeper.progress))
    sys.stdout.write(f"{(given.out / 'results.md').read_text()}\nwritten to {given.out}\n")
    return 0


class Keeper:
    """Keeps what was found on disk, anew after each round, so that a run that is cut short is not lost."""

    def __init__(
        self, given: argparse.Namespace, jobs: list[str], told: dict[str, dict[str, Any]], before: dict[str, Any] | None
    ) -> None:
        self.given, self.jobs, self.told, self.before = given, jobs, told, before
        self.begun, self.loads, self.round = time.time(), [os.getloadavg()[0]], 0

    def progress(self, number: int, job: str, peer: str, found: dict[str, Any]) -> None:
        self.loads.append(os.getloadavg()[0])
        if number != self.round:
            self.round = number
            self.write(found)
        sys.stderr.write(f"round {number + 1}: {job} {peer} (load {self.loads[-1]:.1f})\n")

    def write(self, found: dict[str, Any]) -> None:
        run = {
            "day": time.strftime("%Y-%m-%d", time.gmtime(self.begun)), "minutes": round((time.time() - self.begun) / 60, 1),
            "rounds": self.given.rounds, "seed": self.given.seed, "load_low": round(min(self.loads), 2),
            "load": round(statistics.median(self.loads), 2), "load_high": round(max(self.loads), 2),
        }
        mine = {"machine": machine(), "runs": [run], "jobs_run": self.jobs, "peers": self.told, **found}
        write(results.added(self.before, mine) if self.before else mine, self.given.out)


def installed(wanted: list[peers.Peer], jobs: list[str]) -> dict[str, dict[str, Any]]:
    """Install the peers that a job needs, one after another; one that cannot be is told with the reason."""
    told: dict[str, dict[str, Any]] = {}
    for peer in wanted:
        if not any(peer.key in rows.JOB_BY_KEY[job].peers for job in jobs):
            continue
        try:
            venvs.ensure(peer)
            told[peer.key] = {"title": peer.title, "version": venvs.version(peer)}
        except venvs.NotInstalled as problem:
            told[peer.key] = {"title": peer.title, "missing": str(problem)}
            sys.stderr.write(f"{peer.title} cannot be installed: {problem}\n")
    return told


def machine() -> dict[str, Any]:
    """Say what the figures depend on, and nothing that names the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "python": platform.python_version(), "kernel": platform.release().split("-")[0], "libc": "-".join(platform.libc_ver()),
        "cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / (1 << 30), 1), "torch": peers.TORCH,
    }


def _cpu() -> str:
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(result: dict[str, Any], folder: Path) -> None:
    """Write what a run found."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(table.whole(result), encoding="utf-8")
    if picture.possible():
        picture.draw(result, folder / "results.png")
    else:
        sys.stderr.write("no picture: matplotlib is not installed; `pip install -e '.[bench]'` does that\n")


if __name__ == "__main__":
    sys.exit(main())
