"""What is measured, for whom, and what it must reach: the table of design 8, with the rows of scaling beside it.

A *job* is one process in a peer's venv, or in a host of ours, that yields one value per round for one or more rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.peers import EVERYONE, OURS

WITH_TORCH = tuple(key for key in EVERYONE if key != "dask")
WORKERS = tuple(key for key in WITH_TORCH if key != "inprocess")
ALONE = (OURS,)
BEST = "best"


@dataclass(frozen=True)
class Target:
    """At most so many times what another has (a peer, the best peer, or our own figure in another row), plus a constant.

    Without `to` the constant alone is the limit, in the row's unit of storage: seconds, bytes or a bare ratio.
    """

    times: float = 0.0
    to: str = ""
    row: str = ""
    plus: float = 0.0


@dataclass(frozen=True)
class Row:
    """``alone``: nobody else has such a thing, although the job is everyone's."""

    key: str
    title: str
    job: str
    unit: str = "ms"
    targets: tuple[Target, ...] = ()
    note: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Job:
    """``limit`` is the most seconds one round may take."""

    key: str
    peers: tuple[str, ...]
    limit: float = 120.0


JOBS = (
    Job("pinned", WORKERS),
    Job("noop", WORKERS),
    Job("proxy", ALONE),
    Job("tensors", WITH_TORCH),
    Job("cold", WITH_TORCH),
    Job("born", WITH_TORCH),
    Job("six", ALONE),
    Job("segv", (*WORKERS, "dask")),
    Job("orphan", WORKERS),
    Job("stop", WORKERS),
    Job("import", WITH_TORCH),
    Job("flat", ALONE),
)


def _at_most(limit: float) -> Target:
    return Target(plus=limit)


ROWS = (
    Row("noop_pinned", "warm no-op, both sides on one core", "pinned", "us",
        (Target(0.75, "pipe"), Target(0.15, "executor"), Target(0.03, "ray"), _at_most(20e-6))),
    Row("noop_pinned_p99", "the same, p99", "pinned", "us", (_at_most(100e-6),)),
    Row("noop_free", "warm no-op, free placement", "noop", "us", (Target(0.5, "pipe"), Target(0.08, "pyisolate"), Target(0.05, "oldenv"))),
    Row("noop_free_p99", "the same, p99", "noop", "us"),
    Row("proxy", "proxy call of nothing through the ComfyUI layer", "proxy", "us", (_at_most(110e-6),),
        "0.1 of the 1.1 ms that comfy-env 0.4.46 took; its nodes need an environment that pixi builds, so it is not measured here"),
    Row("proxy_192", "192 MiB through two isolated nodes, beyond two plain ones", "proxy", "ms"),
    Row("fresh_3", "3 MiB, fresh in, x + 1 out", "tensors", "ms", (Target(0.4, "zmq"), Target(0.1, "oldenv"))),
    Row("fresh_192", "192 MiB, fresh in, x + 1 out", "tensors", "ms", (Target(0.3, BEST),)),
    Row("shared_again_3", "3 MiB that are shared already, to their maker", "tensors", "us", (Target(2, OURS, "noop_free"),)),
    Row("shared_again_192", "192 MiB that are shared already, to their maker", "tensors", "us", (Target(2, OURS, "noop_free"),)),
    Row("shared_forward_3", "3 MiB from worker A through the host to worker B", "tensors", "us", (Target(2, OURS, "noop_free"),)),
    Row("shared_forward_192", "192 MiB from worker A through the host to worker B", "tensors", "us", (Target(2, OURS, "noop_free"),)),
    Row("cold", "cold start without torch, to the first result", "cold", "ms", (Target(1, BEST),),
        "in process: a bare interpreter"),
    Row("cold_torch", "first cold start with torch, to the first result", "born", "ms", (Target(1.1, "inprocess", plus=0.05),),
        "in process: a bare interpreter that imports torch; ours: an env whose workers were never seen before"),
    Row("cold_torch_later", "the same in a later host, which knows what the env's workers import", "born", "ms",
        (Target(1.1, "inprocess", "cold_torch", plus=0.05),), "the first worker is forked by a zygote that must be made first", alone=True),
    Row("replace_first", "the very first replacement of an env, torch pack", "born", "ms", (), "it makes the zygote", alone=True),
    Row("replace", "replacement after a kill, torch pack, to the next result", "born", "ms",
        (Target(0.03, BEST), Target(0.03, OURS, "cold_torch")), "ours: any but an env's very first one"),
    Row("uss_first", "own memory (USS) of an env's first process, torch imported", "born", "MiB"),
    Row("uss_second", "own memory (USS) of its second process", "born", "MiB", (Target(0.1, BEST), Target(0.1, OURS, "uss_first"))),
    Row("six_row", "six cold envs one after another", "six", "ms"),
    Row("six_together", "six cold envs at once", "six", "ms"),
    Row("six_ratio", "at once / one after another", "six", "", (_at_most(0.6),)),
    Row("segv_0", "SIGSEGV in mid-call to the caller's error", "segv", "ms", (_at_most(0.010),)),
    Row("segv_2048", "the same, 2 GiB held by the worker", "segv", "ms", (_at_most(0.010),)),
    Row("orphan_free", "host SIGKILLed to busy worker gone", "orphan", "ms", (_at_most(0.050),), "the call lasts 2 s"),
    Row("orphan_held", "the same, native code holds the worker's GIL", "orphan", "ms", (_at_most(0.050),), "the call lasts 2 s"),
    Row("stop_busy", "clean stop with 3 busy workers", "stop", "ms", (_at_most(5.0),), "each sleeps for 60 s"),
    Row("import", "import of the package in the host", "import", "ms", (_at_most(0.030),)),
    Row("import_used", "import of what a host uses of it", "import", "ms", (_at_most(0.030),),
        "`from comfy_env import EnvPlan, WorkerPool`", alone=True),
    Row("import_exit", "what an unused import adds to the exit", "import", "ms", (_at_most(0.002),), "\"nothing\" is read as 2 ms"),
    Row("flat_envs", "cost of a call beside 15 envs without a worker / alone", "flat", "", (_at_most(1.2),)),
    Row("flat_workers", "cost of a call beside 15 other workers / alone", "flat", "", (_at_most(1.2),)),
    Row("flat_calls", "cost of a call after 20,000 calls / at first", "flat", "", (_at_most(1.2),)),
    Row("flat_tensors", "cost of a call with 256 live results / with none", "flat", "", (_at_most(1.2),)),
)
BY_KEY = {row.key: row for row in ROWS}
JOB_BY_KEY = {job.key: job for job in JOBS}


def chosen(words: str) -> list[str]:
    """Return the jobs of a comma-separated list of rows, jobs or beginnings of their names; all of them for an empty one."""
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    unknown = [word for word in wanted if not _jobs_of(word)]
    if unknown:
        raise SystemExit(f"no row is called {', '.join(unknown)}; there are: {', '.join(BY_KEY)}")
    jobs = {job for word in wanted for job in _jobs_of(word)}
    return [job.key for job in JOBS if not wanted or job.key in jobs]


def _jobs_of(word: str) -> set[str]:
    return {row.job for row in ROWS if row.key.startswith(word) or row.job == word}


def of_jobs(jobs: Iterable[str]) -> list[Row]:
    """Return the rows that these jobs measure."""
    wanted = set(jobs)
    return [row for row in ROWS if row.job in wanted]
