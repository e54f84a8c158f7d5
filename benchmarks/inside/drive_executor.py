"""concurrent.futures.ProcessPoolExecutor with one spawned worker each."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import work
from driving import Driver


class Peer(Driver):
    name = "concurrent.futures.process"
    cannot = {"stop": "shutdown waits for the calls, without a limit"}

    def __init__(self):
        self.executors = {}

    def start(self, number=0):
        self.executors[number] = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def call(self, function, number=0, **arguments):
        return self.executors[number].submit(work.run, function, arguments).result()

    def stop(self):
        for executor in self.executors.values():
            executor.shutdown()
