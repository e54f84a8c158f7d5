"""Functions that run in the workers of these tests."""

import collections
import ctypes
import os
import resource
import sys

KEPT = []
Pair = collections.namedtuple("Pair", ["first", "second"])


def echo(value):
    return value


def nothing(*values):
    return None


def fill(value, number):
    """Write into an input, as no node should, and return it."""
    value[...] = number
    return value


def fill_first(first, second, number):
    """Write into one input and return the other."""
    first[...] = number
    return second


def total(value):
    return float(value.sum())


def keep(value):
    KEPT.append(value)


def keep_filled(value, number):
    value[...] = number
    KEPT.append(value)


def kept_totals():
    return [float(value.sum()) for value in KEPT]


def let_go():
    KEPT.clear()


def plus_one(value):
    return value + 1


def ones(count, dtype="float32"):
    numpy = __import__("numpy")
    return numpy.ones(count, dtype)


def sparse_memory(count):
    """Return zeros whose pages are never touched here."""
    return __import__("numpy").zeros(count, "u1")


def name_of(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def without(module):
    sys.modules[module] = None


def has(module):
    return sys.modules.get(module) is not None


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def limit(name, value):
    number = getattr(resource, name)
    resource.setrlimit(number, (value, resource.getrlimit(number)[1]))


def use_up_descriptors():
    """Open files until no more can be."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 2, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            KEPT.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return len(KEPT)


def address_space_left(size):
    """Limit the address space to what is used now and so much more."""
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    limit("RLIMIT_AS", used + size)


def no_nameless_memory():
    segments = sys.modules["comfy_env.worker.wire.segments"]
    segments.nameless = lambda: None


def no_shared_memory():
    def refuse(size, label=""):
        raise OSError(28, "No space left on device")

    sys.modules["comfy_env.worker.wire.segments"].create = refuse


def little_memory():
    sys.modules["comfy_env.worker.wire.headroom"].RESERVE = 1 << 60


def join_group(folder):
    with open(os.path.join(folder, "cgroup.procs"), "w") as stream:
        stream.write(str(os.getpid()))


def crash():
    ctypes.string_at(0)


class Counting:
    """A socket that counts what is asked of it."""

    def __init__(self, sock):
        self.sock = sock
        self.calls = 0

    def __getattr__(self, name):
        self.calls += name in ("send", "sendmsg", "recv_into", "recvmsg_into")
        return getattr(self.sock, name)


def _lane():
    return sys.modules["comfy_env.worker.callback"].workers.find().loop._stream


def count_system_calls():
    _lane().sock = Counting(_lane().sock)


def system_calls():
    return _lane().sock.calls


def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def as_buffer(value):
    return __import__("pickle").PickleBuffer(value)


def total_of_bytes(value):
    return sum(value)
