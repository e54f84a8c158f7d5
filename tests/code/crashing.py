"""A pack that crashes, and does what a pack must not do to the pipe a crash is told through."""

import ctypes
import faulthandler
import fcntl
import os
import signal
import threading
import time

KEPT = []


def pid():
    return os.getpid()


def is_there(pid):
    return os.path.exists(f"/proc/{pid}/stat")


def hold(size):
    data = bytearray(size)
    for place in range(0, size, 4096):
        data[place] = 1
    KEPT.append(data)


def fault(mark=None):
    """Leave the time in a file, then crash."""
    if mark:
        with open(mark, "w") as file:
            file.write(str(time.monotonic()))
    ctypes.string_at(0)


def raise_signal(name):
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(60)


def abort():
    os.abort()


def fault_on_a_thread():
    threading.Thread(target=fault).start()
    time.sleep(60)


def fault_soon(seconds):
    threading.Timer(seconds, fault).start()
    return os.getpid()


def crash_pipes():
    """Return the pipes that can be written besides the standard streams: there is one."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            kind, flags = os.readlink("/proc/self/fd/" + name), fcntl.fcntl(int(name), fcntl.F_GETFL)
        except OSError:
            continue
        if int(name) > 2 and kind.startswith("pipe:") and flags & os.O_ACCMODE == os.O_WRONLY:
            found.append(int(name))
    return found


def write_into_the_crash_pipe(text, times=1):
    for _ in range(times):
        for pipe in crash_pipes():
            os.write(pipe, text.encode())
    return len(crash_pipes())


def write_then_sleep(text, seconds):
    write_into_the_crash_pipe(text)
    time.sleep(seconds)
    return os.getpid()


def close_the_crash_pipe():
    for pipe in crash_pipes():
        os.close(pipe)
    return len(crash_pipes())


def enable_its_own_handler():
    faulthandler.enable()


def pipes_of_a_forked_child():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, str(len(crash_pipes()) - 1).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    told = os.read(read, 100)
    os.close(read)
    return int(told)


def crash_in_a_forked_child(by):
    """Have a child crash; return the signal it ended by. ``by`` is Python's fork, or the C library's, of which Python knows nothing."""
    child = os.fork() if by == "python" else ctypes.CDLL(None).fork()
    if not child:
        fault()
    return os.waitpid(child, 0)[1] & 0x7F
