"""What the contract's tests run in a worker. Standard library only, Python 3.9, found by name through an import root."""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

_calls: list = []


def add(a, b=0):
    return a + b


def whoami():
    """Return what this worker is: process, parent's process, interpreter, thread."""
    return {"pid": os.getpid(), "python": sys.executable, "version": sys.version_info[:2], "thread": threading.get_ident()}


def count():
    """Return how often this very worker was asked."""
    _calls.append(None)
    return len(_calls)


def variable(name):
    return os.environ.get(name)


def fail(text):
    raise ValueError(text)


def say(text):
    """Write a line to the real standard output, below Python's."""
    os.write(1, (text + "\n").encode())


def die(how):
    """End this process: "exit" with status 0, "kill" or "segv" by that signal."""
    say("last words")
    if how == "exit":
        os._exit(0)
    if how == "segv":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


def alone(folder):
    """Stay a moment where only one may be; return False if somebody else was there."""
    mark = os.path.join(folder, "inside")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    time.sleep(0.005)
    os.unlink(mark)
    return True


def hold(folder):
    """Tell that this call began, then wait for the file `go`; an interrupt ends it."""
    mark = os.path.join(folder, "began")
    with open(f"{mark}.{os.getpid()}", "w") as began:
        began.write(f"{os.getpid()}\n")
    os.replace(began.name, mark)   # whoever sees it can read it whole
    limit = time.monotonic() + 60
    while not os.path.exists(os.path.join(folder, "go")):
        if time.monotonic() > limit:
            raise TimeoutError("nobody said go")
        time.sleep(0.005)
    return "gone"


def hold_native(folder):
    """Tell that this call began, then wait for the file `go` without ever running Python code an interrupt could reach."""
    try:
        return hold(folder)
    except BaseException:  # the interrupt, whatever its class: this function is one that will not be interrupted
        return hold(folder)


def large(size):
    """Return bytes that are not part of the message."""
    return pickle.PickleBuffer(bytearray(size))


def length(value):
    return len(value)


def with_child():
    """Start a process that outlives this call and return its id."""
    child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(120)"], stdin=subprocess.DEVNULL)
    _calls.append(child)
    return child.pid
