"""Seeded soak: callers on several environments while workers are killed, crash, raise and are interrupted.

    python -m benchmarks.soak [--minutes 1] [--seed 0] [--envs 3] [--callers 4]

Every call must end with its own answer or with a named error that a fault explains; in the end no process, thread or
descriptor may be left. Ends with 1 and the environments' stories if that is not so. The same seed asks for the same
faults in the same order per caller.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from comfy_env import ComfyEnvError, DiedBeforeJoining, EnvPlan, Interrupted, NodeRaised, Settings, WorkerCrashed, WorkerPool

ALLOWED = (NodeRaised, WorkerCrashed, Interrupted, DiedBeforeJoining)  # the last: killed while it was being born


@dataclass
class Tally:
    """What happened; `wrong` must stay empty."""

    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, which: Counter[str], what: str) -> None:
        with self.lock:
            which[what] += 1


class Caller:
    """One thread's work: mostly calls whose answer it knows, now and then a fault."""

    def __init__(self, pool: WorkerPool, plans: list[EnvPlan], seed: str, tally: Tally) -> None:
        self.pool = pool
        self.plans = plans
        self.dice = random.Random(seed)
        self.tally = tally
        self.deeds: list[tuple[int, Callable[[EnvPlan], None]]] = [
            (80, self.sums), (10, self.echoes), (4, self.raises), (2, self.exits), (2, self.kills), (2, self.interrupts),
        ]

    def run(self, until: float) -> None:
        weights, deeds = zip(*self.deeds, strict=True)
        while time.monotonic() < until:
            deed = self.dice.choices(deeds, weights)[0]
            plan = self.dice.choice(self.plans)
            try:
                deed(plan)
            except ALLOWED as error:
                self.tally.add(self.tally.calls, type(error).__name__)
            except ComfyEnvError as error:
                self.wrong(plan, f"{type(error).__name__}: {error}")

    def wrong(self, plan: EnvPlan, what: str) -> None:
        with self.tally.lock:
            self.tally.wrong.append(f"{plan.key}: {what}")

    def expect(self, plan: EnvPlan, answer: object, wanted: object) -> None:
        self.tally.add(self.tally.calls, "answered")
        if answer != wanted:
            self.wrong(plan, f"answered {answer!r:.200} instead of {wanted!r:.200}")

    def sums(self, plan: EnvPlan) -> None:
        numbers = [self.dice.randrange(1 << 40) for _ in range(self.dice.randrange(1, 20))]
        self.expect(plan, self.pool.call(plan, "builtins:sum", numbers), sum(numbers))

    def echoes(self, plan: EnvPlan) -> None:
        blob = self.dice.randbytes(self.dice.randrange(1, 1 << 20))
        self.expect(plan, self.pool.call(plan, "builtins:bytes", blob), blob)

    def raises(self, plan: EnvPlan) -> None:
        self.tally.add(self.tally.faults, "raised")
        self.pool.call(plan, "builtins:int", "no number")
        self.wrong(plan, "int('no number') did not raise")

    def exits(self, plan: EnvPlan) -> None:
        self.tally.add(self.tally.faults, "exited")
        self.pool.call(plan, "os:_exit", self.dice.randrange(3))
        self.wrong(plan, "os._exit returned")

    def kills(self, plan: EnvPlan) -> None:
        record = self.pool.record(plan)
        if record is not None and record.pid is not None:
            self.tally.add(self.tally.faults, "killed")
            with suppress(ProcessLookupError):  # another fault was quicker
                os.kill(record.pid, signal.SIGKILL)

    def interrupts(self, plan: EnvPlan) -> None:
        timer = threading.Timer(0.02, self.pool.interrupt, [plan])
        timer.start()
        self.tally.add(self.tally.faults, "interrupted")
        try:
            self.pool.call(plan, "time:sleep", 0.1)
        finally:
            timer.join()


def left(before: set[str]) -> list[str]:
    """Return what the pool left behind, a second after it closed."""
    limit = time.monotonic() + 1
    while True:
        found = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
        found += [f"descriptor {fd}" for fd in descriptors() - before]
        found += children()
        if not found or time.monotonic() > limit:
            return found
        time.sleep(0.02)


def descriptors() -> set[str]:
    names = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            names.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return names


def children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [f"child {pid}" for pid in file.read().split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--envs", type=int, default=3)
    parser.add_argument("--callers", type=int, default=4)
    options = parser.parse_args()
    plans = [EnvPlan.existing(sys.executable, f"soak-{number}") for number in range(options.envs)]
    tally, before, stories = Tally(), descriptors(), []
    with WorkerPool(Settings(crash_limit=1000, crash_window=1)) as pool:
        until = time.monotonic() + options.minutes * 60
        threads = [threading.Thread(target=Caller(pool, plans, f"{options.seed}/{number}", tally).run, args=(until,))
                   for number in range(options.callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        generations = {plan.key: record.generation for plan in plans if (record := pool.record(plan))}
        stories = [line for plan in plans for line in (plan.key, *pool.story(plan))]
    tally.wrong += [f"left behind: {what}" for what in left(before)]
    print(f"seed {options.seed}: calls {dict(tally.calls)}, faults {dict(tally.faults)}, generations {generations}")
    if not tally.wrong and all(tally.faults[what] for what in ("raised", "exited", "killed", "interrupted")):
        print("every call ended with its answer or a named error; nothing is left behind")
        return 0
    print("\n".join(["WRONG:", *(tally.wrong or ["a kind of fault was never fired: let it run longer"]), *stories]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
