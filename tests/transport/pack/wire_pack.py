"""Functions that run in the workers of these tests; standard library only."""

import collections
import ctypes
import dataclasses
import enum
import os
import stat
import subprocess
import sys
import time


def echo(*args, **kwargs):
    return (args, kwargs) if kwargs else args[0] if len(args) == 1 else args


def where():
    return {"version": list(sys.version_info[:2]), "pid": os.getpid(), "path": list(sys.path), "modules": sorted(sys.modules)}


def fail(kind, *args):
    raise getattr(__import__("builtins"), kind)(*args)


def die(how):
    """End this process in the way that is asked for."""
    print("last words", flush=True)
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "kill":
        os.kill(os.getpid(), 9)
    elif how == "exit":
        os._exit(0)
    time.sleep(60)


def die_in_result():
    return Dying()


class Dying(collections.UserList):
    """Ends the process while its result is being written."""

    @property
    def __class__(self):
        os._exit(3)


def sys_exit():
    sys.exit(5)


def unprintable():
    class Odd(Exception):
        def __str__(self):
            raise ValueError("no text")

        __repr__ = __str__

    raise Odd(object())


def recurse():
    return recurse()


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def make(name):
    return {
        "lambda": lambda: (lambda: 1), "generator": lambda: (i for i in ()), "file": lambda: open(os.devnull),
        "recursive": _recursive, "object": Model, "local": _local, "module": lambda: sys,
    }[name]()


def _recursive():
    value = [1]
    value.append(value)
    return value


def _local():
    class Local:
        pass

    return Local()


class Model:
    """An object no other process can have."""

    def __init__(self):
        self.weights = [1, 2]


MADE = []


def make_model():
    MADE.append(Model())
    return MADE[-1]


def is_the_last(model):
    return model is MADE[-1]


def sleep(seconds):
    time.sleep(seconds)
    return "slept"


def spin(seconds):
    """Compute in Python, so that only the exception of an interrupt can end it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100))
    return "spun"


def stubborn(seconds):
    """Swallow what should end it, as badly written nodes do."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(0.01)
        except BaseException:
            STUBBORN.append(1)
    return len(STUBBORN)


STUBBORN = []


def hold_the_gil(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return "held"


def types_of(*values):
    return [f"{type(v).__module__}.{type(v).__qualname__}" for v in values]


class Shade(enum.Enum):
    DARK = 1


@dataclasses.dataclass
class Record:
    a: object


def record(value):
    return Record(value)


def is_record(value):
    return isinstance(value, Record) and value.a is Shade.DARK


def numpy_double(array):
    import numpy

    assert isinstance(array, numpy.ndarray), type(array)
    return array * 2


def open_descriptors():
    """Return which descriptors are open, and which of them a program started from here would get."""
    numbers = list(_open_numbers())
    return numbers, [fd for fd in numbers if os.get_inheritable(fd)]


def _open_numbers():
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        yield fd


def sockets_of_a_child():
    """Return how many sockets this process has, and how many a forked child of it."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(_sockets()).encode())
        os._exit(0)
    mine = _sockets()
    return mine, int(os.read(read, 10)), os.wait()[1]


def _sockets():
    return sum(stat.S_ISSOCK(os.fstat(fd).st_mode) for fd in _open_numbers())


def grandchild():
    """Start a process that would live on, and return its number."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid


def fork_and_hold(seconds):
    """Fork a child that lives on, as a pack's helper does, then end without it."""
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)
    os._exit(9)


# ---------------------------------------------------------------- with the host

def _callback():
    from comfy_env.worker import callback

    return callback


def ask(name, *args, **kwargs):
    return _callback().call_host(name, *args, **kwargs)


def ask_and_catch(name, *args):
    try:
        return _callback().call_host(name, *args)
    except _callback().CallbackFailed as error:
        return [error.remote_type, error.text]


def ask_and_keep_the_trace(name, *args):
    try:
        return _callback().call_host(name, *args)
    except _callback().CallbackFailed as error:
        return [error.remote_type, error.remote_traceback]


def progress(count, preview=None):
    for i in range(count):
        _callback().report_progress(i + 1, count, "node", preview)
    return "done"


def progress_until_stopped(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _callback().report_progress(1, 2)
        time.sleep(0.005)
    return "never stopped"


def progress_of_a_thread(count):
    import threading

    thread = threading.Thread(target=progress, args=(count,))
    thread.start()
    thread.join()
    return "done"


def poll_interrupt(seconds):
    """Swallow the exception and look at the flag instead."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if _callback().interrupted():
                return "saw the flag"
            time.sleep(0.005)
        except _callback().CallInterrupted:
            continue
    return "saw nothing"


def node():
    return _callback().current_node()


CACHE = []


def keep(count):
    CACHE.extend(bytearray(1000) for _ in range(count))
    _callback().register_cache(lambda: sum(map(len, CACHE)), CACHE.clear)


class PackNode:
    calls = 0

    @classmethod
    def INPUT_TYPES(cls):
        cls.calls += 1
        return {"required": {"n": ("INT", {"calls": cls.calls})}}

    @classmethod
    def IS_CHANGED(cls, n=0):
        return f"print {n}"


NODE_CLASS_MAPPINGS = {"PackNode": PackNode}


class Heavy:
    """An object with an array in it."""

    def __init__(self, count):
        self.array = __import__("numpy").ones(count, "f4")


class Unwritable:
    def __init__(self):
        self.handle = lambda: 1


def make_heavy(count):
    return Heavy(count)


def make_unwritable():
    return Unwritable()


def describe_model(model):
    return [type(model).__module__, type(model).__qualname__, model.weights]


def total_of(heavy):
    return float(heavy.array.sum())


def models_of(mapping):
    return {name: describe_model(model) for name, model in mapping.items()}
