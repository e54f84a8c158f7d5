"""pyzmq: a pair of sockets over ipc; a tensor's bytes as a frame that is not copied on the way out."""

import os
import pickle
import subprocess
import sys
import tempfile

import zmq
from driving import FOLDER, Driver, serve

LOOP = f"import sys; sys.path.insert(0, {FOLDER!r}); import drive_zmq; drive_zmq.loop(sys.argv[1])"


def send(sock, value):
    buffers = []
    head = pickle.dumps(packed(value), protocol=5, buffer_callback=buffers.append)
    sock.send_multipart([head, *(buffer.raw() for buffer in buffers)], copy=False)


def receive(sock):
    head, *frames = sock.recv_multipart(copy=False)
    return unpacked(pickle.loads(head.buffer, buffers=[frame.buffer for frame in frames]))


def packed(value):
    """Return the value with arrays in place of tensors, whose bytes pickle leaves outside the message."""
    if isinstance(value, tuple):
        return tuple(packed(item) for item in value)
    if isinstance(value, dict):
        return {key: packed(item) for key, item in value.items()}
    return value.numpy() if hasattr(value, "numpy") else value


def unpacked(value):
    if isinstance(value, tuple):
        return tuple(unpacked(item) for item in value)
    if isinstance(value, dict):
        return {key: unpacked(item) for key, item in value.items()}
    if type(value).__name__ != "ndarray":
        return value
    import torch

    return torch.from_numpy(value)


def loop(address):
    sock = zmq.Context().socket(zmq.PAIR)
    sock.connect(address)
    serve(lambda: receive(sock), lambda value: send(sock, value))


class Peer(Driver):
    name = "zmq"
    cannot = {"shared": "no shared memory", "stop": "a busy worker does not read the farewell"}

    def __init__(self):
        self.context = zmq.Context()
        self.folder = tempfile.mkdtemp(prefix="bench-zmq-", dir=os.environ.get("BENCH_FOLDER"))
        self.socks, self.processes = {}, {}

    def start(self, number=0):
        sock = self.context.socket(zmq.PAIR)
        address = f"ipc://{self.folder}/{len(self.processes)}-{number}"
        sock.bind(address)
        self.socks[number] = sock
        self.processes[number] = subprocess.Popen([sys.executable, "-c", LOOP, address])

    def call(self, function, number=0, **arguments):
        send(self.socks[number], (function, arguments))
        return receive(self.socks[number])

    def stop(self):
        for number, process in self.processes.items():
            send(self.socks[number], None)
            process.wait(10)
        self.context.destroy(linger=0)
