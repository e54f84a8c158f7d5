"""execnet: a gateway to a second interpreter; built-in types only, so that a tensor travels as its bytes."""

import sys

import execnet
import work
from driving import FOLDER, Driver

LOOP = f"""
import sys
sys.path.insert(0, {FOLDER!r})
import drive_execnet
drive_execnet.loop(channel)
"""


def loop(channel):
    while True:
        request = channel.receive()
        if request is None:
            return
        name, arguments = request
        channel.send(outward(work.run(name, inward(arguments))))


def inward(value):
    """Return the value with tensors in place of their bytes."""
    if isinstance(value, dict):
        return {key: inward(item) for key, item in value.items()}
    if not isinstance(value, bytes):
        return value
    import torch

    return torch.frombuffer(bytearray(value), dtype=torch.float32)


def outward(value):
    if isinstance(value, dict):
        return {key: outward(item) for key, item in value.items()}
    return value.numpy().tobytes() if hasattr(value, "numpy") else value


class Peer(Driver):
    name = "execnet"
    cannot = {"shared": "no shared memory"}

    def __init__(self):
        self.gateways, self.channels = {}, {}

    def start(self, number=0):
        gateway = execnet.makegateway(f"popen//python={sys.executable}")
        self.gateways[number], self.channels[number] = gateway, gateway.remote_exec(LOOP)

    def call(self, function, number=0, **arguments):
        self.channels[number].send((function, outward(arguments)))
        return inward(self.channels[number].receive())

    def stop(self):
        execnet.default_group.terminate(timeout=5)
