"""Ray on this machine: an actor as the worker, tensors through its object store. Its cluster's start is part of a cold start."""

import os

import ray
import work
from driving import FOLDER, Driver


class Worker:
    def run(self, name, arguments):
        return work.run(name, arguments)


class Peer(Driver):
    name = "ray"

    def __init__(self):
        self.actors = {}

    def start(self, number=0):
        if not ray.is_initialized():
            ray.init(
                num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False, object_store_memory=2 << 30,
                runtime_env={"env_vars": {"PYTHONPATH": FOLDER, "OMP_NUM_THREADS": "1"}}, _temp_dir=os.environ.get("BENCH_RAY_FOLDER"),
            )
        made = ray.remote(Worker).options(max_restarts=-1, num_cpus=1)
        self.actors[number] = made.remote()

    def call(self, function, number=0, **arguments):
        return ray.get(self.actors[number].run.remote(function, arguments))

    def lost(self, number=0):
        """Leave it to Ray, which restarts its actors."""

    def stop(self):
        ray.shutdown()
