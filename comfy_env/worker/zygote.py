"""The zygote: a process that has imported an environment's heavy modules and forks workers from there.

It serves no calls, runs nothing of a pack, has one thread, and computes nothing. Its host talks to it over one socket:
an order first, then requests. When the host is gone the kernel ends it by its lifeline, and so does the socket's end.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import boot, errands, forked, heavy, orphaned, threads, trial
from .wire.faults import LaneEnd

Environ = Callable[[Mapping[str, str]], None]
"""Makes these variables this process's own."""

_SET = 2.0   # s a child may take from the fork until it leads its own session


def run(channel_fd: int, variables: Mapping[str, str], put: Environ) -> int:
    """Serve until the host ends; in a forked child, serve as its worker. Returns the exit code."""
    channel = socket.socket(fileno=channel_fd)
    channel.set_inheritable(False)
    try:
        order, _ = errands.receive(channel)
        return Zygote(channel, order, variables, put).run()
    except LaneEnd:
        return 1


class Zygote:
    """``order``: nonce, lifeline_fd, record_lock, modules, trial_seconds."""

    def __init__(self, channel: socket.socket, order: Mapping[str, Any], variables: Mapping[str, str], put: Environ) -> None:
        self._channel = channel
        self._order = order
        self._variables = variables
        self._put = put
        self._lifeline = order["lifeline_fd"]
        self._tasks = 1
        self._known: dict[int, str] = {}
        self._setters: Any = None
        self._plain: frozenset[str] = frozenset()   # modules that every worker has

    def run(self) -> int:
        self._protect()
        self._tasks, self._known = _tasks(), forked.open_descriptors()
        trouble = self._import() or trial.why_not(self._prepare_trial, self._order["trial_seconds"])
        trouble = "; ".join(part for part in (trouble, self._unfit(), _helpers()) if part)
        if trouble:
            errands.send(self._channel, {"refused": trouble})
            return 0
        gc.freeze()
        _silence()
        errands.send(self._channel, {"ready": True, "places": _places(), "loaded": self._loaded()})
        return self._serve()

    def _protect(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)   # ignored, as a host may have it, it would lose how children end
        os.set_inheritable(self._lifeline, False)
        orphaned.arm(self._lifeline)
        if orphaned.host_is_gone(self._lifeline):
            orphaned.end_group()
        lock = os.open(self._order["record_lock"], os.O_RDWR | os.O_CLOEXEC)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _import(self) -> str:
        """Import what the order names; return which module would not be, '' if all that are there were."""
        self._put({**self._variables, **threads.ONE})
        gc.disable()   # nothing becomes garbage while modules are imported
        importlib.import_module(".guest", __package__)
        self._plain = frozenset(sys.modules)
        for name in heavy.MODULES:
            if name in self._order["modules"]:
                trouble = _imported(name)
                if trouble:
                    return trouble
        self._setters = threads.Setters()
        return ""

    def _loaded(self) -> list[str]:
        """Return the top-level modules that a worker forked from here cannot have otherwise any more."""
        return sorted({name.partition(".")[0] for name in sys.modules.keys() - self._plain})

    def _prepare_trial(self) -> None:
        own = os.urandom(len(self._order["nonce"]) // 2).hex()
        forked.mark(self._order["nonce"], own)
        if not forked.carries(own):
            raise OSError("the mark it is known by cannot be changed")
        self._put(self._variables)
        forked.freshen(self._setters, self._variables)

    def _unfit(self, received: Sequence[int] = ()) -> str:
        """Return why nothing may be forked from this process as it is now, '' if nothing speaks against it."""
        reasons = []
        more = _tasks() - self._tasks
        if more > 0:
            reasons.append(f"threads that its imports started run in it: {more}")
        opened = {fd: what for fd, what in forked.open_descriptors().items() if fd not in received and self._known.get(fd) != what}
        strange = [what for what in opened.values() if what != os.devnull]
        if strange:
            reasons.append(f"its imports left open: {', '.join(strange[:4])}")
        return "; ".join(reasons)

    # ---- requests

    def _serve(self) -> int:
        while True:
            request, descriptors = errands.receive(self._channel)
            if request["do"] == "reap":
                errands.send(self._channel, {"status": _reap(request["pid"])})
            elif self._fork(request, descriptors):
                return self._become(request)

    def _fork(self, request: Mapping[str, Any], descriptors: list[int]) -> bool:
        """Fork a worker and say its number; True in the child."""
        answer: dict[str, Any] = {"refused": self._unfit(descriptors)}
        if not answer["refused"]:
            read, write = os.pipe()
            pid = self._forked(answer)
            if pid == 0:
                self._stand_alone(request, [*descriptors, write])
                return True
            os.close(write)
            if pid is not None:
                answer = _is_set(pid, read)
            os.close(read)
        for fd in descriptors:
            os.close(fd)
        errands.send(self._channel, answer)
        return False

    def _forked(self, answer: dict[str, Any]) -> Any:
        try:
            return os.fork()
        except OSError as error:
            answer["failed"] = f"it cannot fork: {error.strerror}"
            return None

    def _stand_alone(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        """Become a process that only its own host's kill reaches and that has only what is its own, then say so."""
        forked.mark(self._order["nonce"], request["nonce"])
        os.setsid()
        go = _go(request)
        forked.keep_only([os.open(os.devnull, os.O_RDWR), *descriptors], [0, 1, 2, go, *request["numbers"], go + 1])
        os.write(go + 1, b"s")
        os.close(go + 1)

    def _become(self, request: Mapping[str, Any]) -> int:
        """Run as the worker that was asked for, once the host has it in its hand."""
        go = _go(request)
        if not os.read(go, 1):
            return 0   # the host gave this birth up, or is gone
        os.close(go)
        os.chdir(request["cwd"])
        self._put(request["variables"])
        forked.freshen(self._setters, request["variables"])
        forked.take_on(request["inherited"])
        sys.argv[1:] = ["--boot", str(request["boot_fd"])]
        return boot.run(boot.read_document(*sys.argv[1:]))


def _go(request: Mapping[str, Any]) -> int:
    """Return the number under which a child has the pipe that it waits on for its host's word."""
    return max([2, *request["numbers"]]) + 1


def _imported(name: str) -> str:
    """Import a module; return why it would not be, '' also where it is not installed any more."""
    try:
        importlib.import_module(name)
    except BaseException as error:  # a module of somebody else's may raise anything
        gone = isinstance(error, ModuleNotFoundError) and error.name is not None and (name + ".").startswith(error.name + ".")
        return "" if gone else f"{name} cannot be imported in it: {type(error).__name__}: {error}"
    return ""


def _tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def _helpers() -> str:
    """Return what is wrong if imports started processes; asked before any worker is forked."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    return "its imports started processes"


def _is_set(pid: int, read: int) -> dict[str, Any]:
    """Wait until a child leads its own session; one that does not is ended."""
    poll = select.poll()
    poll.register(read, select.POLLIN)
    if poll.poll(_SET * 1000) and os.read(read, 1):
        return {"pid": pid}
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return {"failed": "its child did not come to stand alone"}


def _reap(pid: int) -> Any:
    """Collect a child that ended and return its status; None for one that runs, or is nobody's."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if found else None


def _silence() -> None:
    """Say nothing any more: nobody reads on."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def _places() -> dict[str, int]:
    """Return the folders modules come from, each with when it last changed."""
    return {place: os.stat(place).st_mtime_ns for place in sys.path if os.path.isdir(place)}
