"""Functions that run in the workers of the device checks, over whatever device the tensors they get are on."""

import os
import sys

KEPT = []


def echo(value):
    return value


def nothing(*values):
    return None


def plus_one(value):
    return value + 1


def fill(value, number):
    """Write into an input, as no node should, and return it."""
    value.fill_(number)
    return value


def facts(value):
    return str(value.device), str(value.dtype), tuple(value.shape), tuple(value.stride()), bool(value.requires_grad)


def content(value):
    return value.detach().cpu().contiguous()


def total(value):
    return float(value.sum().cpu())


def keep(value):
    KEPT.append(value)


def keep_filled(value, number):
    KEPT.append(value.fill_(number))


def kept_totals():
    return [float(value.sum().cpu()) for value in KEPT]


def let_go():
    KEPT.clear()


def made(value, count):
    """Return so many tensors of this worker's own, each another."""
    return [value + number for number in range(count)]


def return_and_die(value):
    """Have this process end at about the time of its answer."""
    sys.modules["threading"].Timer(0.002, os._exit, (9,)).start()
    return value + 1


def die(value):
    os._exit(9)


def ask_host(value):
    return sys.modules["comfy_env.worker.callback"].call_host("double", value)


def allocated():
    """Return the bytes of the first device that tensors of this process take."""
    return sys.modules["torch"].cuda.memory_allocated(0) if "torch" in sys.modules else 0


def hops():
    """Return how many tensors of this worker went through the host's memory."""
    return sys.modules["comfy_env.worker.callback"].workers.find().loop._tools.devices.hops


def has(module):
    return module in sys.modules
