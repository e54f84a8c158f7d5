"""appose: a service whose worker runs scripts; arrays lie in its named shared memory."""

import os
import sys

import appose
from driving import FOLDER, Driver

SCRIPT = f"""
import sys
if {FOLDER!r} not in sys.path:
    sys.path.insert(0, {FOLDER!r})
import drive_appose
drive_appose.answer(NAME, ARGUMENTS)
"""
KEPT = []


def answer(name, arguments):
    import work

    value = work.run(name, {key: tensor_of(item) for key, item in arguments.items()})
    if not hasattr(value, "numpy"):
        return value
    KEPT[:] = [array_of(value)]
    return KEPT[0]


def tensor_of(value):
    """Return a tensor over the memory of an appose array, which must live as long as the tensor."""
    if not isinstance(value, appose.NDArray):
        return value
    import torch

    tensor = torch.from_numpy(value.ndarray())
    tensor.appose = value
    return tensor


def array_of(tensor):
    """Return the appose array that holds the tensor, a new one unless it came as one."""
    if hasattr(tensor, "appose"):
        return tensor.appose
    array = appose.NDArray("float32", list(tensor.shape))
    array.ndarray()[:] = tensor.numpy()
    return array


class Peer(Driver):
    name = "appose"
    cannot = {"stop": "close waits for the script, without a limit"}

    def __init__(self):
        self.made = []
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.services = {}

    def start(self, number=0):
        env = appose.custom().base(os.path.dirname(sys.executable)).append_system_path().build()
        self.services[number] = env.python().start()

    def call(self, function, number=0, **arguments):
        given = {key: array_of(item) if hasattr(item, "numpy") else item for key, item in arguments.items()}
        script = SCRIPT.replace("NAME", repr(function)).replace("ARGUMENTS", "{" + ", ".join(f"{key!r}: {key}" for key in given) + "}")
        value = self.services[number].task(script, given).wait_for().outputs.get("result")
        if function == "add_one":
            given["tensor"].shm.dispose()
            value.shm.unlink()
        elif function == "make":
            self.made.append(value)
        return tensor_of(value)

    def stop(self):
        while self.made:
            self.made.pop().shm.unlink()
        for service in self.services.values():
            service.close()
