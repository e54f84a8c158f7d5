"""Runs the jobs: rounds of every job of every peer in shuffled order, each in a process of its own, one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import comfyui_nodes, venvs
from benchmarks.rows import JOB_BY_KEY

INSIDE = Path(__file__).resolve().parent / "inside"
MARK = "bench: "
TIDYING = 150
PEERS_START = ("cold", "born", "tensors")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def plan(jobs: Sequence[str], peers: Sequence[str], rounds: int, seed: int) -> Iterator[tuple[int, str, str]]:
    """Yield (round, job, peer) in an order that is shuffled within each round and the same for the same seed."""
    pairs = [(job, peer) for job in jobs for peer in JOB_BY_KEY[job].peers if peer in peers]
    for number in range(rounds):
        order = list(pairs)
        random.Random(f"{seed}/{number}").shuffle(order)
        for job, peer in order:
            yield number, job, peer


def variables(folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a job's process sees: one thread for torch, nothing that steers a peer, folders of its own."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("COMFY_ENV_", "PYTHON", "RAY_", "PYISOLATE_"))}
    ours = {f"COMFY_ENV_{name.upper()}": os.path.join(folder, name) for name in ("runtime", "logs")}
    ours["COMFY_ENV_ENVS"] = str(venvs.folder() / "comfy_env-envs")
    theirs = {"BENCH_FOLDER": folder, "BENCH_BASE": str(venvs.packages_of("base")), "BENCH_RAY_FOLDER": os.path.join(folder, "ray")}
    theirs["BENCH_PYISOLATE_ENVS"] = str(venvs.folder() / "pyisolate-envs")
    return {**kept, **dict.fromkeys(THREADS, "1"), **ours, **theirs, "PYTHONPATH": str(INSIDE)}


def facts_of(job: str, peer: str) -> list[dict[str, Any]]:
    """Run one round of a job and return what it said; a process that failed says so."""
    if job == "proxy":
        return comfyui_nodes.facts()
    folder = tempfile.mkdtemp(prefix="bench-")
    try:
        return _facts(job, peer, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _facts(job: str, peer: str, folder: str) -> list[dict[str, Any]]:
    command = [str(venvs.python_of(peer)), str(INSIDE / "measuring.py"), peer, job]
    with open(os.path.join(folder, "out"), "w+") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=variables(folder, os.environ), stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        late = _ended(process, JOB_BY_KEY[job].limit)
        out.seek(0)
        lines = out.read().splitlines()
    facts = [json.loads(line[len(MARK):]) for line in lines if line.startswith(MARK)]
    if not any("done" in fact or "cannot" in fact for fact in facts):
        words = f"no end within {JOB_BY_KEY[job].limit:g} s" if late else f"ended with {process.returncode}: {' '.join(lines[-1:])[:200]}"
        facts.append({"job": job, "failed": words})
    return facts


def _ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for a job, and end what is left of its session after a while; tell whether the job itself had to be ended.

    The while is for those who tidy up after it, like multiprocessing's resource tracker.
    """
    late = False
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        late = True
    with contextlib.suppress(ProcessLookupError):  # nobody of its session is left
        for _ in range(0 if late else TIDYING):
            os.killpg(process.pid, 0)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return late


def warm_up(jobs: Sequence[str], peers: Sequence[str]) -> None:
    """Start everyone once, unmeasured: bytecode is written, files are read, environments of peers are made."""
    for job in ("cold", "born"):
        for peer in JOB_BY_KEY[job].peers:
            if peer in peers and set(jobs) & set(PEERS_START):
                facts_of(job, peer)


def measure(jobs: Sequence[str], peers: Sequence[str], rounds: int, seed: int, tell: Any) -> dict[str, dict[str, Any]]:
    """Return row → peer → {"rounds", "note"?}, and under "jobs" what a peer cannot do or failed at.

    `tell` is called before each job with (round, job, peer, what was found so far).
    """
    found: dict[str, dict[str, Any]] = {"rows": {}, "jobs": {}}
    for number, job, peer in plan(jobs, peers, rounds, seed):
        tell(number, job, peer, found)
        if "cannot" not in found["jobs"].get(job, {}).get(peer, {}):
            for fact in facts_of(job, peer):
                record(found["rows"], found["jobs"], job, peer, fact)
    return found


def record(rows: dict[str, Any], trouble: dict[str, Any], job: str, peer: str, fact: Mapping[str, Any]) -> None:
    """Put one thing that a job said where it belongs."""
    if "value" in fact:
        rows.setdefault(fact["row"], {}).setdefault(peer, {"rounds": []})["rounds"].append(fact["value"])
    elif "note" in fact:
        rows.setdefault(fact["row"], {}).setdefault(peer, {"rounds": []})["note"] = fact["note"]
    else:
        told = {key: fact[key] for key in ("cannot", "failed") if key in fact}
        if told:
            trouble.setdefault(fact.get("job", job), {}).setdefault(peer, {}).update(told)
