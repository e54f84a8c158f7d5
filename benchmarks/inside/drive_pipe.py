"""multiprocessing.Pipe: a spawned process that reads pickles from a connection."""

import multiprocessing

from driving import Driver, serve


def loop(connection):
    serve(connection.recv, connection.send)


class Peer(Driver):
    name = "multiprocessing"
    cannot = {"stop": "join waits for the call, without a limit"}

    def __init__(self):
        self.context = multiprocessing.get_context("spawn")
        self.near, self.processes = {}, {}

    def start(self, number=0):
        self.near[number], far = self.context.Pipe()
        self.processes[number] = self.context.Process(target=loop, args=(far,), daemon=True)
        self.processes[number].start()
        far.close()

    def call(self, function, number=0, **arguments):
        self.near[number].send((function, arguments))
        return self.near[number].recv()

    def stop(self):
        for connection in self.near.values():
            connection.send(None)
        for process in self.processes.values():
            process.join(10)
