"""This package: a pool whose environments are the interpreter that runs it, or one that the pool built where that matters."""

import os
import sys
from pathlib import Path

from driving import FOLDER, Driver

from comfy_env import EnvPlan, WorkerPool


class Peer(Driver):
    name = "comfy_env"
    uses = "from comfy_env import EnvPlan, WorkerPool"
    learns = True

    def __init__(self):
        self.pool = WorkerPool()
        self.plans = {}
        self.built = False

    def prepare(self, known):
        """Build an environment once and for all runs; unless `known`, forget what its workers were seen to import."""
        self.built = True
        folder = self.pool.build(self._plan(0)).folder
        for packages in folder.rglob("site-packages"):
            (packages / "bench_0.pth").write_text(os.environ["BENCH_BASE"] + "\n")
        if not known:
            (Path(folder) / "comfy-env.imports.json").unlink(missing_ok=True)

    def _plan(self, number):
        if self.built:
            return EnvPlan(f"bench{number}", import_roots=(FOLDER,))
        return EnvPlan.existing(sys.executable, f"bench{number}", import_roots=(FOLDER,))

    def start(self, number=0):
        self.plans[number] = self._plan(number)

    def call(self, function, number=0, **arguments):
        return self.pool.call(self.plans[number], f"work:{function}", **arguments)

    def lost(self, number=0):
        """Leave it to the pool."""

    def stop(self):
        self.pool.close()
