"""A host of its own, for the tests that kill hosts: starts one worker, tells the numbers, waits.

`python host_program.py RUNTIME MODE BUSY`. MODE says what ties the worker to the host: "kernel", "shell", or "watcher"
(the worker's own thread alone). BUSY is what the worker does. Further words: "wrapped", "forking", "at once".
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from comfy_env.process import launch, lifeline, rundir
from tests.process.kit import PlainEndpoint, launch_of, python

WORKER = """
import ctypes, json, os, select, signal, sys, threading, time
fd = int(sys.argv[1])
if select.select([fd], [], [], 0)[0]:
    os._exit(0)   # the host is gone already
def watch():
    select.select([fd], [], [])
    os.killpg(os.getpgrp(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
grandchild = os.fork()
if not grandchild:
    while True:
        pass
told = json.dumps([os.getpid(), grandchild])
if sys.argv[2] != 'gil':
    os.write(1, told.encode())   # in one piece: the host may be killed as soon as it read it
busy = {
    'gil': lambda: ctypes.PyDLL(None).system(f"echo '{told}'; exec sleep 60".encode()),   # told once the GIL is held for good
    'multiply': lambda: (1 << 400_000_000) ** 3,
    'stopped': lambda: os.kill(os.getpid(), signal.SIGSTOP),
    'idle': lambda: time.sleep(60),
}
busy[sys.argv[2]]()
"""


def main(runtime: str, mode: str, busy: str, *more: str) -> None:
    host = rundir.HostRun.open(Path(runtime))
    if mode == "shell":
        lifeline.works = lambda: False
    endpoint = PlainEndpoint(tied=mode != "watcher")
    argv = python(WORKER, endpoint.boot_fd, busy)
    wrapped = ("/bin/sh", "-c", '"$@"; true', "wrapper", *argv)
    process = launch.start(launch_of(host, wrapped if "wrapped" in more else argv, endpoint))
    forked = os.fork() if "forking" in more else 0
    if "forking" in more and not forked:
        time.sleep(60)
    worker, grandchild = ([0, 0] if "at once" in more else read_line(process.outputs[0]))
    told = {"leader": process.pid, "worker": worker, "grandchild": grandchild, "forked": forked, "nonce": process.nonce}
    print(json.dumps(told), flush=True)
    if "replaced" in more:
        os.execv(sys.executable, [sys.executable, __file__, runtime, "again", str(process.pid)])
    time.sleep(60)


def read_line(fd: int) -> list[int]:
    os.set_blocking(fd, True)
    return json.loads(os.read(fd, 4096))


def again(runtime: str, worker: str) -> None:
    """The new life of a host that replaced its program: sweep, and tell what became of the old life's worker."""
    from comfy_env.process import procs, sweep

    limit = time.monotonic() + 2
    while (row := procs.row(int(worker))) and not row.dead and time.monotonic() < limit:
        time.sleep(0.001)
    report = sweep.sweep(Path(runtime))
    told = {"killed": report.killed, "reaped": report.reaped, "zombie": procs.row(int(worker)) is not None}
    print(json.dumps({**told, "left": os.listdir(runtime)}), flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "again":
        again(sys.argv[1], sys.argv[3])
    else:
        main(*sys.argv[1:])
