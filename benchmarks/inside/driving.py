"""What a driver of a peer must offer, and the loop that peers without one of their own run in their worker."""

import json
import os
import queue
import select
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import work

MARK = "bench: "
FOLDER = str(Path(__file__).resolve().parent)


class Driver(ABC):
    """One peer with up to a few workers, numbered from 0.

    `cannot` says by job or row what the peer has nothing for; `name` is the module whose import is measured,
    `uses` the statement that imports what a user needs, where that is more;
    one that `learns` starts an environment's workers in another way once it has seen one.
    """

    name = ""
    uses = ""
    cannot = {}
    learns = False

    def prepare(self, known):
        """Make what a start needs before it is timed; with `known` as a host that comes later would find it."""
        return None

    @abstractmethod
    def start(self, number=0):
        """Start a worker; `call` may be used at once."""

    @abstractmethod
    def call(self, function, number=0, **arguments):
        """Run a function of `work` in a worker and return its value."""

    def lost(self, number=0):
        """Make a new worker in place of one that died; peers that do so by themselves do nothing here."""
        self.start(number)

    @abstractmethod
    def stop(self):
        """End all workers the peer's polite way."""


def kill(pid):
    """Kill a worker and wait until it is gone."""
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait(handle, 10)
    os.close(handle)


def wait(handle, seconds):
    """Return whether the process of a pidfd ended in time."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def patiently(act, limit, since=lambda: None):
    """Run something that may never return on a thread that nobody waits for; raises TimeoutError when the limit is over.

    The limit begins when `since` returns.
    """
    outcome = queue.SimpleQueue()
    threading.Thread(target=_told, args=(act, outcome), daemon=True).start()
    since()
    try:
        value, error = outcome.get(timeout=limit)
    except queue.Empty:
        raise TimeoutError(f"nothing within {limit:g} s") from None
    if error is not None:
        raise error
    return value


def _told(act, outcome):
    try:
        outcome.put((act(), None))
    except BaseException as error:  # carried to the thread that asked
        outcome.put((None, error))


def answered(act, limit=30.0):
    """Run a call again until it succeeds: the first after a death may still report it."""
    end = time.monotonic() + limit
    while True:
        try:
            return act()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.0005)


def said(**facts):
    """Print one fact of the measurement for the runner, apart from whatever else the peer prints."""
    sys.stdout.write(MARK + json.dumps(facts) + "\n")
    sys.stdout.flush()


def serve(receive, send):
    """Answer requests (name, arguments) until None comes: the worker's loop of peers that are only a way to send."""
    while True:
        request = receive()
        if request is None:
            return
        send(work.run(*request))
