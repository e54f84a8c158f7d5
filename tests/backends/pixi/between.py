"""A wrapper that stays between the host and the worker, as a sandbox or a tracer does, and ends the way the worker ended."""

import os
import signal
import subprocess
import sys


def main(argv):
    with subprocess.Popen(argv, close_fds=False) as worker:
        code = worker.wait()
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
