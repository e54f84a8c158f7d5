"""comfy-env of the public index, which shares the import name: its worker without its ComfyUI layer."""

import os
import sys

from comfy_env.isolation.workers.subprocess import SubprocessWorker
from driving import FOLDER, Driver


class Peer(Driver):
    name = "comfy_env"

    def __init__(self):
        self.workers = {}

    def start(self, number=0):
        self.workers[number] = SubprocessWorker(
            sys.executable, working_dir=os.getcwd(), sys_path=[FOLDER], env={"OMP_NUM_THREADS": "1"}, name=f"bench{number}"
        )

    def call(self, function, number=0, **arguments):
        return self.workers[number].call_module("work", function, **arguments)

    def lost(self, number=0):
        """Leave it to the worker's next call, which starts a process where none is."""

    def stop(self):
        for worker in self.workers.values():
            worker.shutdown()
