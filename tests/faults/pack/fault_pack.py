"""What the reliability table's tests run inside workers; standard library only, Python 3.9."""

import os
import sys


def echo(value):
    return value


def ask(name, *args):
    from comfy_env.worker import callback

    return callback.call_host(name, *args)


def blob(size, letter=b"x"):
    return letter * size


def me():
    return os.getpid()


def replace_program(seconds):
    """Become another program, as restarters do; the number stays."""
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", f"import time; time.sleep({seconds})"])


def usage():
    """Return the kilobytes in memory and the open descriptors of this worker."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024, len(os.listdir("/proc/self/fd"))


def die(signum):
    os.kill(os.getpid(), signum)


def eat(megabytes):
    """Take memory until there is none; at most so much."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
    kept = []
    for _ in range(megabytes):
        kept.append(bytearray(1 << 20))
    return len(kept)


def arrays(count, size):
    import numpy

    return [numpy.full(size, number % 251, dtype="uint8") for number in range(count)]


def noise(megabytes):
    """Write whatever a pack may write, to both streams, through Python and below it."""
    frame = b"CEnv\x01\x0b\x00\x00" + b"\x00" * 24
    parts = [b"a line\n", b"\x00\x00\x00\n", "é".encode()[:1], "本".encode()[:2] + b"\n", frame, b"progress 10%\r", b"x" * 70000, b"\n"]
    block = b"".join(parts) * (1 + (1 << 20) // sum(map(len, parts)))
    for number in range(megabytes):
        view = memoryview(block)[: 1 << 20]
        while view:
            view = view[os.write(1 + number % 2, view):]
    print("through Python", flush=True)
    return megabytes


def ignore_everything():
    """Be deaf to all that can be ignored, then stop."""
    import signal

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGSTOP)


def report(value):
    from comfy_env.worker import callback

    callback.report_progress(1, 2, "node", value)
    return "reported"


CHILDREN = []


def with_grandchild():
    """Start a process that outlives this call, in a session of its own, and return its number."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(120)"], start_new_session=True)
    CHILDREN.append(child)
    return child.pid


def bytes_of(array):
    return array.tobytes()
