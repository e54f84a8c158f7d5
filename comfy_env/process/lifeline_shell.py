"""The lifeline where the kernel does not send the signal: one small shell per worker, waiting on the pipe.

Measured on Linux; meant for macOS and other POSIX systems, where it is unproven. It leads a group of its own, carries
the worker's nonce, and so ends with the worker's tree.
"""

from __future__ import annotations

import subprocess

from comfy_env.process.procs import HOST_NONCE, NONCE

SCRIPT = 'read -r _; kill -s KILL -- "-$1"'


def start(fd: int, pgid: int, nonce: str, host_nonce: str) -> int:
    """Start the shell that ends a group when the lifeline's last write end closes; returns its pid, a child of ours."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", SCRIPT, "lifeline", str(pgid)],
        stdin=fd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={NONCE: nonce, HOST_NONCE: host_nonce},
        start_new_session=True,
    )
    shell.returncode = 0  # this object must not collect the process: the one kill does
    return shell.pid
