"""Seeded soak: callers on several environments while workers are killed, stopped, crash, raise and are interrupted.

    python -m benchmarks.soak [--minutes 1] [--seed 0] [--envs 3] [--callers 4] [--json FILE]

Each call carries a value that is checked, so that it must end with its own answer or with a named error that a fault
explains; in the end no process, thread, descriptor, shared-memory name or run folder may be left. Ends with 1 and the
environments' stories if that is not so.

The same seed plans the same deeds in the same order for each caller; how far a run comes depends on the machine. The
plan's fingerprint is printed: equal fingerprints, equal plans.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from comfy_env import CallOptions, ComfyEnvError, EnvPlan, Settings, WorkerPool, errors
from comfy_env.process import procs

EXPLAINED = (errors.NodeRaised, errors.WorkerCrashed, errors.Interrupted, errors.DiedBeforeJoining, errors.CallSilent, errors.LaneLost)
"""What a fault of any caller may do to a call of another one on the same environment."""
CALLS = {"sum": 70, "echo": 12, "callback": 6, "progress": 4}
FAULTS = {
    "raise": 4, "exit": 2, "kill": 2, "segfault": 1, "abort": 1, "stop": 1, "interrupt": 3, "end": 1, "release": 2, "leave": 2, "refuse": 2,
}
FINGERPRINT = 10_000


class Deed(NamedTuple):
    """One planned thing: what, on which environment, and the number that everything else about it follows from."""

    kind: str
    env: int
    number: int


def plan(seed: int, caller: int, envs: int) -> Iterator[Deed]:
    """Yield a caller's deeds without end: every kind of fault once, then calls and faults as their weights say."""
    dice = random.Random(f"{seed}/{caller}")
    first = list(FAULTS)
    dice.shuffle(first)
    weights = {**CALLS, **FAULTS}
    rest = (dice.choices(list(weights), list(weights.values()))[0] for _ in itertools.count())
    for kind in itertools.chain(itertools.chain.from_iterable(zip(first, itertools.repeat("sum"), strict=False)), rest):
        yield Deed(kind, dice.randrange(envs), dice.getrandbits(48))


def fingerprint(seed: int, callers: int, envs: int) -> str:
    """Return what tells one plan from another."""
    told = hashlib.sha256()
    for caller in range(callers):
        told.update(repr(list(itertools.islice(plan(seed, caller, envs), FINGERPRINT))).encode())
    return told.hexdigest()[:16]


@dataclass
class Tally:
    """What happened; `wrong` must stay empty."""

    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ended(self, how: str, seconds: float) -> None:
        with self.lock:
            self.calls[how] += 1
            self.longest = max(self.longest, seconds)

    def fired(self, kind: str) -> None:
        with self.lock:
            self.faults[kind] += 1


class Caller:
    """One thread's work."""

    def __init__(self, pool: WorkerPool, plans: list[EnvPlan], tally: Tally) -> None:
        self.pool, self.plans, self.tally = pool, plans, tally

    def run(self, deeds: Iterator[Deed], until: float) -> None:
        for deed in deeds:
            if time.monotonic() > until:
                return
            began = time.monotonic()
            try:
                how = self.do(deed)
            except EXPLAINED as error:
                how = type(error).__name__
            except ComfyEnvError as error:
                how = self.wrong(deed, f"{type(error).__name__}: {error}")
            self.tally.ended(how, time.monotonic() - began)

    def do(self, deed: Deed) -> str:
        env, dice = self.plans[deed.env], random.Random(deed.number)
        if deed.kind in FAULTS:
            getattr(self, f"fault_{deed.kind}")(env, deed)
            return deed.kind
        answer, wanted = getattr(self, f"call_{deed.kind}")(env, dice)
        return "answered" if answer == wanted else self.wrong(deed, f"answered {answer!r:.200} instead of {wanted!r:.200}")

    def wrong(self, deed: Deed, what: str) -> str:
        with self.tally.lock:
            self.tally.wrong.append(f"{deed}: {what}")
        return "wrong"

    # ---- calls: the answer and what it must be

    def call_sum(self, env: EnvPlan, dice: random.Random) -> tuple[Any, Any]:
        numbers = [dice.randrange(1 << 40) for _ in range(dice.randrange(1, 20))]
        return self.pool.call(env, "builtins:sum", numbers), sum(numbers)

    def call_echo(self, env: EnvPlan, dice: random.Random) -> tuple[Any, Any]:
        blob = dice.randbytes(dice.randrange(1, 1 << 20))
        return self.pool.call(env, "builtins:bytes", blob), blob

    def call_callback(self, env: EnvPlan, dice: random.Random) -> tuple[Any, Any]:
        number = dice.randrange(1 << 40)
        options = CallOptions(callbacks={"double": lambda value: 2 * value})
        return self.pool.call(env, "comfy_env.worker.callback:call_host", "double", number, options=options), 2 * number

    def call_progress(self, env: EnvPlan, dice: random.Random) -> tuple[Any, Any]:
        number, seen = dice.randrange(1 << 40), []
        options = CallOptions(on_progress=lambda progress: seen.append(progress.value))
        self.pool.call(env, "comfy_env.worker.callback:report_progress", number, number + 1, options=options)
        return seen, [number]

    # ---- faults: each says that it was fired

    def fault_raise(self, env: EnvPlan, deed: Deed) -> None:
        self.tally.fired(deed.kind)
        self.pool.call(env, "builtins:int", "no number")
        self.wrong(deed, "int('no number') returned")

    def fault_exit(self, env: EnvPlan, deed: Deed) -> None:
        self.tally.fired(deed.kind)
        self.pool.call(env, "os:_exit", deed.number % 3)
        self.wrong(deed, "os._exit returned")

    def fault_segfault(self, env: EnvPlan, deed: Deed) -> None:
        self.tally.fired(deed.kind)
        self.pool.call(env, "ctypes:string_at", 0)
        self.wrong(deed, "reading address 0 returned")

    def fault_abort(self, env: EnvPlan, deed: Deed) -> None:
        self.tally.fired(deed.kind)
        self.pool.call(env, "os:abort")
        self.wrong(deed, "os.abort returned")

    def fault_kill(self, env: EnvPlan, deed: Deed) -> None:
        self._signal(env, deed, signal.SIGKILL)

    def fault_stop(self, env: EnvPlan, deed: Deed) -> None:
        self._signal(env, deed, signal.SIGSTOP)

    def _signal(self, env: EnvPlan, deed: Deed, signum: int) -> None:
        self.pool.call(env, "os:getpid")   # so that there is somebody, whoever ended the last one
        record = self.pool.record(env)
        if record is not None and record.pid is not None:
            with suppress(ProcessLookupError):  # another fault was quicker
                os.kill(record.pid, signum)
                self.tally.fired(deed.kind)

    def fault_interrupt(self, env: EnvPlan, deed: Deed) -> None:
        timer = threading.Timer(0.02, self.pool.interrupt, [env])
        timer.start()
        self.tally.fired(deed.kind)
        try:
            self.pool.call(env, "time:sleep", 0.1)
        finally:
            timer.join()

    def fault_end(self, env: EnvPlan, deed: Deed) -> None:
        if self.pool.kill(env):
            self.tally.fired(deed.kind)

    def fault_release(self, env: EnvPlan, deed: Deed) -> None:
        self.tally.fired(deed.kind)
        self.pool.release(env)

    def fault_leave(self, env: EnvPlan, deed: Deed) -> None:
        """Leave before the call begins, if somebody else is on the lane."""
        self.tally.fired(deed.kind)
        with suppress(errors.CallWithdrawn):
            self.pool.call(env, "builtins:int", 1, options=CallOptions(wait=0.0005))

    def fault_refuse(self, env: EnvPlan, deed: Deed) -> None:
        """Send what cannot cross, and ask for what cannot come back."""
        self.tally.fired(deed.kind)
        for target, argument in (("builtins:str", threading.Lock()), ("builtins:iter", [1])):
            try:
                self.pool.call(env, target, argument)
            except errors.EncodeRefused:
                continue


# ---------------------------------------------------------------- what is left

def left(before: set[str], host_nonces: set[str], folder: Path) -> list[str]:
    """Return what the pool left behind, a second after it closed."""
    limit = time.monotonic() + 1
    while True:
        gc.collect()
        found = [f"thread {thread.name}" for thread in threading.enumerate() if thread is not threading.current_thread()]
        found += sorted(present() - before) + processes(host_nonces) + [f"folder {path}" for path in folder.rglob("host-*")]
        if not found or time.monotonic() > limit:
            return found
        time.sleep(0.02)


def present() -> set[str]:
    """Return the open descriptors and the names in shared memory."""
    names = {f"name /dev/shm/{name}" for name in (os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else ())}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            names.add(f"descriptor {name} {os.readlink(f'/proc/self/fd/{name}')}")
    return names


def processes(host_nonces: set[str]) -> list[str]:
    """Return our own children, and everybody who was started by a worker of this run."""
    entries = [f"\0{procs.HOST_NONCE}={nonce}\0".encode() for nonce in host_nonces]
    ours = [row for row in procs.rows() if row.parent == os.getpid() or any(e in b"\0" + procs.environment(row.pid) for e in entries)]
    return [f"process {row.pid} in state {row.state}" for row in ours]


def memory() -> int:
    """Return this process's resident megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


# ---------------------------------------------------------------- the run

def soak(minutes: float, seed: int, envs: int, callers: int) -> dict[str, Any]:
    """Run and return the summary."""
    folder, before, tally = Path(tempfile.mkdtemp(prefix="soak-")), present(), Tally()
    plans = [EnvPlan.existing(sys.executable, f"soak-{number}") for number in range(envs)]
    settings = Settings(runtime_folder=folder / "run", log_folder=folder / "logs", crash_limit=1000, crash_window=0.0, call_silence=1.5)
    with WorkerPool(settings) as pool:
        until = time.monotonic() + minutes * 60
        work: Callable[[int], None] = lambda number: Caller(pool, plans, tally).run(plan(seed, number, envs), until)  # noqa: E731
        threads = [threading.Thread(target=work, args=(number,), name=f"soak caller {number}") for number in range(callers)]
        for thread in threads:
            thread.start()
        begun = memory()
        for thread in threads:
            thread.join()
        grown, nonces = memory() - begun, {path.name.removeprefix("host-") for path in (folder / "run").glob("host-*") if path.is_dir()}
        generations = {env.key: pool.call(env, "builtins:len", "four") and pool.record(env).generation for env in plans}  # type: ignore[union-attr]
        stories = {env.key: pool.story(env) for env in plans}
    leftovers = left(before, nonces, folder / "run")
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "seed": seed, "plan": fingerprint(seed, callers, envs), "minutes": minutes,
        "calls": dict(tally.calls), "faults": dict(tally.faults),
        "generations": generations, "longest": round(tally.longest, 2), "grown_mb": grown, "wrong": tally.wrong, "left": leftovers,
        "never": sorted(set(FAULTS) - set(tally.faults)), "stories": stories,
    }


def told(found: dict[str, Any]) -> str:
    """Return the summary for people."""
    ended = ", ".join(f"{how} {count}" for how, count in sorted(found["calls"].items(), key=lambda item: -item[1]))
    fired = ", ".join(f"{kind} {count}" for kind, count in sorted(found["faults"].items()))
    lines = [
        f"seed {found['seed']}, plan {found['plan']}, {found['minutes']:g} min",
        f"calls {sum(found['calls'].values())}: {ended}",
        f"faults fired {sum(found['faults'].values())}: {fired}",
        f"generations {found['generations']}, longest deed {found['longest']} s, memory {found['grown_mb']:+d} MB",
        f"wrong answers {len(found['wrong'])}, leftovers {len(found['left'])}",
    ]
    lines += [f"WRONG: {what}" for what in found["wrong"]] + [f"LEFT: {what}" for what in found["left"]]
    lines += [f"NEVER FIRED: {kind}; let it run longer" for kind in found["never"]]
    if found["wrong"]:
        lines += [line for key, story in found["stories"].items() for line in (f"story of {key}:", *story)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--envs", type=int, default=3)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the summary here too")
    options = parser.parse_args()
    found = soak(options.minutes, options.seed, options.envs, options.callers)
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")
    print(told(found))
    return 1 if found["wrong"] or found["left"] or found["never"] else 0


if __name__ == "__main__":
    sys.exit(main())
