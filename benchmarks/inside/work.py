"""What the worker of every peer is asked to do. Standard library until a function needs torch; imported on both sides."""

import os
import time

FLOATS_PER_MIB = 1 << 18


def noop():
    """Do nothing."""


def pid():
    return os.getpid()


def torch_ready():
    """Import torch, with one thread, and return its version."""
    import torch

    torch.set_num_threads(1)
    return str(torch.__version__)


def make(mib):
    import torch

    return torch.full((mib * FLOATS_PER_MIB,), 1.0)


def make_array(kib):
    import numpy

    return numpy.ones(kib << 8, dtype=numpy.float32)


def add_one(tensor):
    return tensor + 1


def peek(tensor):
    """Read one element, so that a tensor that was only announced would be fetched."""
    return float(tensor[0])


def nap(seconds, held, stamp):
    """Be busy; with `held` in native code that keeps the interpreter's lock all the while."""
    if held:
        import ctypes

        sleep = ctypes.PyDLL(None).usleep
        note(stamp)
        sleep(int(seconds * 1e6))
    else:
        note(stamp)
        time.sleep(seconds)
    return seconds


def crash(mib, stamp):
    """Hold so much touched memory, then read from address 0."""
    import ctypes

    held = bytearray(b"\1") * (mib << 20)
    note(stamp)
    ctypes.string_at(0)
    return len(held)


def note(path):
    """Write the present moment of the clock that all processes of the machine share; a second try does not count."""
    if os.path.exists(path):
        return
    with open(path + ".part", "w") as file:
        file.write(str(time.monotonic()))
    os.replace(path + ".part", path)


def noted(path, limit=30.0):
    """Return the moment that a worker wrote, waiting for it."""
    end = time.monotonic() + limit
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(f"the worker did not begin within {limit:g} s")
        time.sleep(0.005)
    with open(path) as file:
        return float(file.read())


def run(name, arguments):
    """Do what a driver's loop was asked for."""
    return globals()[name](**arguments)
