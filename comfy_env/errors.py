"""Every error this package raises, in one tree.

::

    ComfyEnvError
    ├── CallFailed                 a call was accepted and did not return
    │   ├── NodeRaised             the function itself raised; __cause__ is the original where the host knows its class
    │   ├── WorkerCrashed          the process ended in mid-call
    │   ├── CallSilent             no progress, callback or reply for the call's silence limit
    │   ├── Interrupted            somebody asked for the interrupt
    │   ├── ReferenceLost          the object lived in a worker that is gone
    │   ├── HookStopped            a hook of an awaited call raised StopIteration, which no coroutine can pass on (RuntimeError too)
    │   └── CallWithdrawn          the asker left before the call began (timeout, cancelled)
    ├── SpawnFailed                no worker could be had
    │   ├── InterpreterMissing     the interpreter is not there or cannot be executed
    │   ├── DiedBeforeJoining      it ended before its lanes were open; carries the exit status
    │   ├── BirthSilent            alive but no sign of life for the birth limit
    │   ├── TransportRefused       it joined, but the canary came back wrong, or it is not who it must be
    │   ├── EnvNotBuilt            the environment does not exist yet
    │   ├── EnvMoved               the environment was moved or copied since it was built
    │   ├── Parked                 it died too often in a short time
    │   └── Wedged                 an older generation was killed but will not die
    ├── PoolClosed                 the pool was closed
    ├── LaneBusy                   a command waited for a worker's lane longer than its limit
    ├── LaneLost                   the connection to a worker ended (OSError too)
    ├── FrameDamaged               framing is lost or a frame is refused by its header
    ├── DecodeRefused              a message holds what its receiver does not accept
    ├── EncodeRefused              a value cannot cross; names the attribute path
    ├── PlanError                  a declaration is wrong; names file and line
    ├── BuildFailed                an environment could not be built; names the log file
    │   ├── BuildCancelled
    │   ├── ToolTooOld             the tool that would build it is older than what is needed
    │   ├── Unsatisfiable          no set of packages satisfies what is asked
    │   ├── PlatformMissing        it is not declared, or not locked, for this machine
    │   └── PackageDamaged         a package is not what its channel says it is
    └── BackendError               a backend's hook broke its contract; names backend and verb

Every error is told in four parts: what happened, the facts (environment, generation, process, status), the worker's
last words, and what to do next. The parts stay readable as attributes.
"""

from __future__ import annotations


class ComfyEnvError(Exception):
    """An error of this package, with the facts it is about.

    ``env`` is the environment's key, ``generation`` counts its workers from 1 (0: none), ``pid`` is None for a worker
    without a process of its own, ``status`` is the exit status in words, ``output`` holds the worker's last lines,
    ``stack`` the Python stack it was in, ``story`` a line for each of its last workers, ``hint`` the next step.
    """

    def __init__(
        self,
        message: str,
        *,
        env: str = "",
        generation: int = 0,
        pid: int | None = None,
        status: str = "",
        output: tuple[str, ...] = (),
        stack: str = "",
        story: tuple[str, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.env = env
        self.generation = generation
        self.pid = pid
        self.status = status
        self.output = output
        self.stack = stack
        self.story = story
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self._sections()])

    def _headline(self) -> str:
        facts = []
        if self.env:
            facts.append(f"env {self.env}")
        if self.generation:
            facts.append(f"generation {self.generation}")
        if self.pid is not None:
            facts.append(f"pid {self.pid}")
        if self.status:
            facts.append(self.status)
        return f"{self.message} [{', '.join(facts)}]" if facts else self.message

    def _sections(self) -> list[str]:
        lines: list[str] = []
        if self.stack:
            lines += ["its stack:", *(f"  {line}" for line in self.stack.rstrip().splitlines())]
        if self.output:
            lines += ["its last output:", *(f"  {line}" for line in self.output)]
        if self.story:
            whole = f" (all of it: comfy-env story {self.env})" if self.env else ""
            lines += [f"its story{whole}:", *(f"  {line}" for line in self.story)]
        if self.hint:
            lines.append(f"next: {self.hint}")
        return lines


class CallFailed(ComfyEnvError):
    """A call did not return."""


class NodeRaised(CallFailed):
    """The function raised. ``remote_type`` is its qualified class name, ``remote_traceback`` the worker's traceback."""

    remote_type: str = ""
    remote_traceback: str = ""

    def _sections(self) -> list[str]:
        trace = [f"  {line}" for line in self.remote_traceback.rstrip().splitlines()]
        return (["in the worker:", *trace] if trace else []) + super()._sections()


class WorkerCrashed(CallFailed):
    """The worker's process ended in mid-call."""


class CallSilent(CallFailed, TimeoutError):
    """The call showed no sign of life for its silence limit and was ended."""


class Interrupted(CallFailed):
    """The call was interrupted because somebody asked for it."""


class ReferenceLost(CallFailed):
    """The object a reference stands for lived in a worker that is gone."""


class HookStopped(CallFailed, RuntimeError):
    """A hook or callback of an awaited call raised StopIteration, which no coroutine can pass on; it is the cause."""


class CallWithdrawn(CallFailed, TimeoutError):
    """The asker left before the call began."""


class SpawnFailed(ComfyEnvError):
    """No worker could be had for a call."""


class InterpreterMissing(SpawnFailed, FileNotFoundError):
    """The interpreter is not there or cannot be executed."""


class DiedBeforeJoining(SpawnFailed):
    """The worker ended before its lanes were open."""


class BirthSilent(SpawnFailed, TimeoutError):
    """The worker is alive but showed no sign of life for the birth limit."""


class TransportRefused(SpawnFailed):
    """The worker joined but did not prove itself."""


class EnvNotBuilt(SpawnFailed):
    """The environment has not been built."""


class EnvMoved(SpawnFailed):
    """The environment was moved or copied since it was built."""


class Parked(SpawnFailed):
    """The environment's workers died too often in a short time."""


class Wedged(SpawnFailed):
    """An older worker of the environment was killed but will not die."""


class PoolClosed(ComfyEnvError):
    """The pool was closed; nothing spawns after that."""


class LaneBusy(ComfyEnvError, TimeoutError):
    """A command waited for a worker's lane longer than its limit."""


class LaneLost(ComfyEnvError, ConnectionError):
    """The connection to a worker ended."""


class FrameDamaged(ComfyEnvError):
    """A frame's header or checksum is wrong; the lane cannot be used any more."""


class DecodeRefused(ComfyEnvError):
    """A message holds something its receiver does not accept."""


class EncodeRefused(ComfyEnvError, TypeError):
    """A value cannot cross to or from a worker."""


class PlanError(ComfyEnvError, ValueError):
    """A declaration of an environment is wrong."""


class BuildFailed(ComfyEnvError):
    """An environment could not be built."""


class BuildCancelled(BuildFailed):
    """A build was cancelled; the environment is as it was before."""


class ToolTooOld(BuildFailed):
    """The tool that would build the environment is older than what is needed."""


class Unsatisfiable(BuildFailed):
    """No set of packages satisfies what the environment asks for."""


class PlatformMissing(BuildFailed):
    """The environment is not declared, or not locked, for this machine."""


class PackageDamaged(BuildFailed):
    """A package is not what its channel or the lock says it is."""


class BackendError(ComfyEnvError):
    """A backend's hook broke its contract."""
