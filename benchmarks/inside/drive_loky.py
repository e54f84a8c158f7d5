"""loky: its process pool executor with one worker each."""

import loky
import work
from driving import Driver


class Peer(Driver):
    name = "loky"

    def __init__(self):
        self.executors = {}

    def start(self, number=0):
        self.executors[number] = loky.ProcessPoolExecutor(1, timeout=None)

    def call(self, function, number=0, **arguments):
        return self.executors[number].submit(work.run, function, arguments).result()

    def stop(self):
        for executor in self.executors.values():
            executor.shutdown(kill_workers=True)
