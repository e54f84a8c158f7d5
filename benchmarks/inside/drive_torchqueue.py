"""torch.multiprocessing: a spawned process between two queues, tensors through its reductions (shared memory)."""

import torch.multiprocessing as multiprocessing
from driving import Driver, serve


def loop(requests, answers):
    serve(requests.get, answers.put)


class Peer(Driver):
    name = "torch.multiprocessing"
    cannot = {"stop": "join waits for the call, without a limit", "cold": "needs torch in both processes"}

    def __init__(self):
        self.context = multiprocessing.get_context("spawn")
        self.queues, self.processes = {}, {}

    def start(self, number=0):
        self.queues[number] = self.context.Queue(), self.context.Queue()
        self.processes[number] = self.context.Process(target=loop, args=self.queues[number], daemon=True)
        self.processes[number].start()

    def call(self, function, number=0, **arguments):
        requests, answers = self.queues[number]
        requests.put((function, arguments))
        return answers.get()

    def stop(self):
        for requests, _ in self.queues.values():
            requests.put(None)
        for process in self.processes.values():
            process.join(10)
