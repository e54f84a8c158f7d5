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
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(%r)" % seconds])
