"""Functions that tests run inside workers by name. Standard library only, Python 3.9."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time


def where():
    return {
        "pid": os.getpid(), "python": sys.version.split()[0], "executable": sys.executable, "prefix": sys.prefix,
        "minor": list(sys.version_info[:2]),
    }


def pid():
    return os.getpid()


def echo(*args, **kwargs):
    return args[0] if len(args) == 1 and not kwargs else (args, kwargs)


def add(a, b):
    return a + b


def fail(text):
    raise ValueError(text)


def exit_now(status):
    print("last words before the exit", flush=True)
    os._exit(status)


def kill_self():
    sys.stderr.write("last words before the kill\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def segfault():
    print("last words before the fault", flush=True)
    ctypes.string_at(0)


def abort():
    os.abort()


def sleep(seconds):
    time.sleep(seconds)
    return seconds


def spin():
    while True:
        pass


def hold_the_gil(seconds, mark=None):
    """Sleep in native code without giving the interpreter lock back; leave a mark right before."""
    usleep = ctypes.PyDLL(None).usleep
    if mark:
        open(mark, "w").close()
    usleep(int(seconds * 1e6))
    return seconds


def hold_the_gil_with_a_grandchild(path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(path, "w") as note:
        note.write("%d %d" % (os.getpid(), child.pid))
    os.replace(path, path + ".ready")
    while True:
        ctypes.PyDLL(None).usleep(60_000_000)


def touch_then_wait_for(mine, other, seconds):
    """Show that two calls overlap: leave a mark and wait for the other's."""
    open(mine, "w").close()
    until = time.monotonic() + seconds
    while not os.path.exists(other):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def progress(times):
    from comfy_env.worker import callback

    for i in range(times):
        callback.report_progress(i + 1, times)
    return times


def call_back(name, *args):
    from comfy_env.worker import callback

    return callback.call_host(name, *args)


class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value


def make_counter():
    return Counter()


def count(counter):
    return counter.add()


def environment():
    return dict(os.environ)


def modules():
    return sorted(sys.modules)


def threads():
    return [t.name for t in threading.enumerate()]


def noise(lines):
    for i in range(lines):
        print("line %d" % i)
    sys.stdout.flush()
    return lines


def version_of(module):
    import importlib

    found = importlib.import_module(module)
    return [found.__version__, found.__file__]


def report_slowly(times, pause):
    from comfy_env.worker import callback

    for i in range(times):
        time.sleep(pause)
        callback.report_progress(i + 1, times)
    return times


def nap():
    while True:
        time.sleep(0.02)


def report_then_hold_the_gil():
    from comfy_env.worker import callback

    _then_hold_the_gil(lambda: callback.report_progress(1, 2))


def hold_the_gil_whatever_comes(mark):
    _then_hold_the_gil(lambda: open(mark, "w").close())


def _then_hold_the_gil(first):
    hold = ctypes.PyDLL(None).usleep
    steps = [first, lambda: hold(600_000_000), lambda: hold(600_000_000)]
    while steps:
        try:
            steps.pop(0)()
        except BaseException:  # the interrupt: this function heeds none
            continue


def hold_bytes(size):
    """Keep so many bytes, as far as the host is told, until a release."""
    from comfy_env.worker import callback

    kept = [size]
    callback.register_cache(lambda: kept[0], lambda: kept.__setitem__(0, 0))
    return size


def keep_memory(mib):
    """Hold so much memory of this process's own, every page of it written to."""
    where.kept = bytearray(b"x" * (mib << 20))


def sleep_on():
    time.sleep(1_000_000)


def spin_with_a_grandchild(path):
    """Loop in Python beside a child that ignores polite signals; leave both numbers."""
    child = subprocess.Popen([
        sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    ])
    with open(path, "w") as note:
        note.write("%d %d" % (os.getpid(), child.pid))
    os.replace(path, path + ".ready")
    while True:
        try:
            time.sleep(600)
        except BaseException:  # the interrupt: this function heeds none
            continue


def become(program, *args):
    """Replace this worker's program."""
    os.execv(program, [program, *args])


def wait_for(path, seconds=30.0):
    """Loop in Python until a file is there."""
    until = time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(path)
    return path


def call_back_then_sleep(name):
    from comfy_env.worker import callback

    callback.call_host(name)
    time.sleep(600)


def nap_for(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.0002)
    return "rested"


def noise_then_die(lines):
    for number in range(lines):
        print("line %d" % number, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def start_escapee():
    """Start a child in a session of its own and return its number."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid


def escape_with_a_grandchild(path):
    """Start a child in a session of its own, then compute for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open(path, "w") as note:
        note.write("%d %d" % (os.getpid(), child.pid))
    os.replace(path, path + ".ready")
    while True:
        time.sleep(60)


class Strict(Exception):
    """What stands for an ExceptionGroup where there is none."""


def raise_group():
    group = getattr(__import__("builtins"), "ExceptionGroup", None)
    raise group("several", [ValueError(1)]) if group else Strict("several")


class Unreadable(Exception):
    """An exception whose arguments nobody can have."""

    @property
    def args(self):
        raise RuntimeError("no arguments")


def unreadable(raised):
    if raised:
        raise Unreadable
    return [Unreadable()]


def much_text(size):
    return "x" * size
