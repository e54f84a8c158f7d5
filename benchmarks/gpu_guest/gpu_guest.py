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
    """Ask for the end of this process right after the answer."""
    sys.modules["threading"].Timer(0.0, os._exit, (9,)).start()
    return value + 1


def die(value):
    os._exit(9)


def ask_host(value):
    return sys.modules["comfy_env.worker.callback"].call_host("double", value)


def has(module):
    return module in sys.modules
