"""A zygote in the host's hand: a process that imported an environment's heavy modules and forks its workers.

It is started like a worker, with a record, a group and a lifeline of its own, and ended by the same kill. A fork is whole
or it did not happen: the child waits until the host has it in its hand, and ends where the host gives up.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace

from comfy_env.errors import SpawnFailed
from comfy_env.process import inheritance, lifeline, procs, tree
from comfy_env.process import launch as launching
from comfy_env.process.forked import ForkedProcess
from comfy_env.process.handle import LocalProcess
from comfy_env.process.output import Output
from comfy_env.process.patience import Patience
from comfy_env.process.rundir import WorkerRun
from comfy_env.process.waits import readable
from comfy_env.process.zygote_channel import Channel
from comfy_env.values import ExitStatus, Launch

log = logging.getLogger(__name__)
ANSWER = 3.0
"""Seconds a zygote may take to fork."""
COLLECT = 0.5
"""Seconds it may take to collect a child: less than a kill's limit, for it is a part of one."""
_LOOK = 0.05
_LINES = 6   # of what it wrote, in the reason why it does not serve


@functools.cache
def possible() -> bool:
    """Return whether this system lets a host have workers forked: their exits watched, their lifelines kept by the kernel."""
    if not procs.LINUX or not hasattr(os, "pidfd_open") or not lifeline.works():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        inheritance.rights()
        inheritance.told()
        inheritance.give(threading.get_native_id())
    except (OSError, KeyError, ValueError) as error:
        log.info("no zygotes here: %s", error)
        return False
    return True


class ForkFailed(SpawnFailed):
    """The zygote forked nothing; the worker can be started plainly."""


class Zygote:
    """Use `start`, then `warm` on a thread of its own. ``refusal`` says why it does not serve, '' while nothing speaks against it.

    ``modules`` are those it was told to import, ``loaded`` the top-level ones that came with them.
    """

    def __init__(self, launch: Launch, run: WorkerRun, channel: Channel, modules: Sequence[str] = ()) -> None:
        self.make = make_of(launch)
        self.modules = frozenset(modules)
        self.loaded: tuple[str, ...] = ()
        self._rights = inheritance.rights()
        self.nonce = run.nonce
        self.warmed = threading.Event()
        self.refusal = ""
        self.serves = False
        self._places: dict[str, int] = {}
        self._run = run
        self._channel = channel
        self._output = Output(launch.env, 0, sink=lambda line: log.debug("[%s zygote] %s", launch.env, line))
        self._asking = threading.RLock()   # a fork that fails has its child collected
        self._children: set[int] = set()
        self.forks = 0
        self._retired = False
        self._lost = False
        self._ending = threading.Lock()
        self._ended = False
        self.process = launching.begin(_launch(launch, run, channel))

    @classmethod
    def start(cls, launch: Launch, run: WorkerRun, modules: Sequence[str], trial_seconds: float) -> Zygote:
        """Start the zygote of a worker's launch; raises SpawnFailed."""
        with contextlib.ExitStack() as undo:
            undo.callback(run.close)
            channel = lifeline.opened(Channel)
            undo.callback(channel.close)
            lifeline_fd = channel.lifeline_read
            zygote = cls(launch, run, channel, modules)
            undo.pop_all()
        order = {"nonce": run.nonce, "lifeline_fd": lifeline_fd, "record_lock": str(run.record_path)}
        with contextlib.suppress(OSError):   # it ended at once: `warm` says how
            channel.tell({**order, "modules": list(modules), "trial_seconds": trial_seconds})
        return zygote

    @property
    def pid(self) -> int:
        return self.process.pid

    def lives(self) -> bool:
        return self.process.exit_status() is None

    def warm(self, seconds: float) -> None:
        """Wait until it serves or says why it will not; `warmed` is set then. Reads its output meanwhile."""
        try:
            self.refusal = self._wait(seconds)
            self.serves = not self.refusal
        finally:
            self.warmed.set()

    def is_for(self, launch: Launch, modules: Sequence[str]) -> bool:
        """Tell whether a worker of this launch, which may have these modules from a zygote, would import itself now what it finds in it."""
        same = self.make == make_of(launch) and self.modules.issubset(modules) and self._rights == _rights_now()
        return same and all(_changed(place) == when for place, when in self._places.items())

    def fork(self, launch: Launch) -> LocalProcess:
        """Fork the launch's worker; raises ForkFailed where it cannot, SpawnFailed where no worker could be started at all."""
        with self._asking, contextlib.ExitStack() as stack:
            try:
                go_read, go_write = os.pipe()
            except OSError as error:
                raise ForkFailed(f"no pipe could be had for its child: {error.strerror}") from error
            stack.callback(os.close, go_read)
            stack.callback(os.close, go_write)   # without a word its child ends by itself
            own = functools.partial(ForkedProcess, parent=self)
            way = launching.Way(lambda it, program, outputs: self._forked(it, program, (*outputs, go_read)), own, self.nonce)
            process = launching.begin(launch, way)
            self.forks += 1
            _let_go(process, go_write)
            return process

    def reap(self, pid: int) -> None:
        """Have a child that ended collected; where the zygote is gone, somebody else did."""
        try:
            with self._asking:
                self._asked({"do": "reap", "pid": pid}, seconds=COLLECT)
        except ForkFailed as error:
            log.debug("process %d was not collected by its zygote: %s", pid, error)
        self._children.discard(pid)
        if self._retired and not self._children:
            self.end()

    def retire(self) -> None:
        """Fork no more; end now, or once the last child was collected: until then it alone can tell how they ended."""
        self.serves = False
        with self._asking:
            self._retired = True
            over = not self._children
        if over:
            self.end()

    @property
    def ended(self) -> bool:
        return self._ended

    def end(self, seconds: float = 2.0) -> None:
        """End it and give back what it had; idempotent."""
        with self._ending:
            if self._ended:
                return
            self.serves = False
            gone = tree.end(self.process, nonce=self.nonce, deadline_seconds=seconds)
            if gone.status is None:
                log.error("zygote %d: %s", self.pid, gone.note)
                return
            Patience(seconds).wait(self.warmed.wait)   # whoever waits for it looks at its descriptors
            self._ended = True
            self.process.close()
            self._output.close()
            self._channel.close()
            self._run.close()

    # ---- talking

    def _forked(self, launch: Launch, program: str, descriptors: tuple[int, ...]) -> int:
        numbers = launch.endpoint.child_fds
        request = {
            "do": "fork", "nonce": launch.nonce, "numbers": list(numbers), "boot_fd": launch.endpoint.boot_fd, "cwd": str(launch.cwd),
            "variables": launching.variables_of(launch, program), "inherited": self._like_its_host(),
        }
        answer = self._asked(request, (*descriptors, *numbers))
        pid = answer.get("pid")
        if type(pid) is not int or pid <= 1:
            raise ForkFailed(str(answer.get("refused") or answer.get("failed") or f"it answered {answer!r}"))
        self._children.add(pid)
        return pid

    def _like_its_host(self) -> dict:
        """Make it like this host is now, as far as that can be given; return the rest, which its child takes on."""
        try:
            inheritance.give(self.pid)
            return inheritance.told()
        except (OSError, ValueError) as error:
            raise ForkFailed(f"it cannot be given what this host has now: {error}") from error

    def _asked(self, request: dict, descriptors: Sequence[int] = (), seconds: float | None = None) -> dict:
        if self._lost:
            raise ForkFailed("it did not answer before")
        try:
            self._channel.limit(ANSWER if seconds is None else seconds)
            self._channel.tell(request, descriptors)
            return self._channel.heard()
        except (OSError, ValueError) as error:
            self._lost, self.serves = True, False   # what it still says would be taken for another answer
            how = self.process.exit_status()
            raise ForkFailed(f"it {how}" if how else f"it does not answer: {error or type(error).__name__}") from error

    def _wait(self, seconds: float) -> str:
        """Return why it will not serve, '' once it does."""
        channel, patience = self._channel.fileno(), int(seconds / _LOOK) + 1
        for _ in range(patience):   # counted in looks: a suspended machine lives none
            if readable([channel], 0):
                return self._first_word()
            status = self.process.exit_status()
            if status is not None:
                return self._last_words(status)
            readable([channel, self.process.watch(), *self._feed()], _LOOK)
        return f"it did not come to serve within {seconds:g} s"

    def _first_word(self) -> str:
        try:
            word = self._channel.heard()
        except (OSError, ValueError):
            Patience(ANSWER).wait(lambda seconds: readable([self.process.watch()], seconds))
            return self._last_words(self.process.exit_status())
        self._places, self.loaded = word.get("places", {}), tuple(word.get("loaded", ()))
        return str(word.get("refused", "")) or ("" if word.get("ready") else f"it said {word!r}")

    def _last_words(self, status: ExitStatus | None) -> str:
        self._feed()
        said = " | ".join(self._output.tail()[-_LINES:])
        return f"it {status or 'closed its channel'}" + (f": {said}" if said else "")

    def _feed(self) -> list[int]:
        """Read what it wrote; return the pipes that are still open."""
        return [fd for fd in self.process.outputs if self._output.feed(fd)]


def _let_go(process: LocalProcess, pipe: int) -> None:
    """Let a child that the host has in its hand become a worker."""
    try:
        os.write(pipe, b"g")
    except OSError as error:
        tree.end(process, nonce=process.nonce)
        process.close()
        raise SpawnFailed(f"the forked worker could not be started: {error.strerror}") from error


def make_of(launch: Launch) -> tuple[object, ...] | None:
    """Return what a worker's program is, but for what differs from worker to worker; None for one that is not a plain worker's."""
    argv = launch.argv
    if argv != launching.command(argv[0], launch.worker_folder, launch.endpoint.boot_fd):
        return None
    own = (procs.NONCE, procs.HOST_NONCE, "COMFY_ENV_GENERATION")
    return argv[0], str(launch.worker_folder), frozenset((name, value) for name, value in launch.variables.items() if name not in own)


def _launch(launch: Launch, run: WorkerRun, channel: Channel) -> Launch:
    """Return the launch of a worker's zygote."""
    argv = (*launch.argv[:-2], "--zygote", str(channel.boot_fd))
    variables = {**launch.variables, "COMFY_ENV_GENERATION": "0"}
    return replace(launch, generation=0, argv=argv, cwd=run.folder, variables=variables, import_roots=(), run_folder=run.folder,
                   nonce=run.nonce, endpoint=channel, auth_key=b"", forker=None)


def _rights_now() -> tuple[str, ...] | None:
    with contextlib.suppress(OSError):   # too many files are open: then nothing is sure
        return inheritance.rights()
    return None


def _changed(place: str) -> int:
    with contextlib.suppress(OSError):   # it is gone
        return os.stat(place).st_mtime_ns
    return -1
