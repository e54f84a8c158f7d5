"""One backend's own relay: it asks only that backend, through the wrappers, and trusts no answer's type.

In a broadcast a verb that returns None would run the next backend's verb; here there is no next backend, None is
refused by name, and whatever a hook raises arrives as an error of this package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from comfy_env.errors import BackendError, ComfyEnvError
from comfy_env.hooks.checks import BACKEND_SPECS, Manager, capabilities_of, require_verbs
from comfy_env.values import (
    BuildStep,
    Canary,
    Changes,
    EnvPlan,
    EnvState,
    Killed,
    Lane,
    Lanes,
    Launch,
    Process,
    Proof,
    Released,
    Want,
)

FIXED = ("env", "generation", "nonce", "host_nonce", "auth_key", "endpoint")
"""What no wrapper may change in a launch."""

MAKING = ("inspect", "plan", "build", "remove")
"""The verbs of a backend that makes environments."""


class Relay:
    """The verbs of one backend as plain methods. Each returns the right type or raises an error of this package."""

    def __init__(self, name: str, backend: Any, wrappers: Iterable[tuple[str, Any]] = ()) -> None:
        self.name = name
        self.backend = backend
        self.capabilities = capabilities_of(backend, f"backend {name!r}")
        self._manager = Manager(BACKEND_SPECS)
        self._manager.admit(backend, f"backend {name!r}")
        require_verbs(self._manager, backend, f"backend {name!r}")
        for label, wrapper in reversed(tuple(wrappers)):  # the manager calls the last one first
            self._manager.admit(wrapper, label, "wrapper")
        self._provides = frozenset(verb for verb in MAKING if self._manager.implements(backend, f"comfy_env_{verb}"))

    def __repr__(self) -> str:
        return f"<Relay to backend {self.name!r}>"

    # ---- the worker's life

    def launch(self, launch: Launch) -> Launch:
        """Return the launch to use: each wrapper in order sees the result of the one before."""
        for impl in reversed(self._manager.hook.comfy_env_launch.get_hookimpls()):
            launch = self._changed(impl, launch)
        return launch

    def spawn(self, launch: Launch) -> Process:
        return self._ask("spawn", is_process, launch=launch)

    def transport(self, process: Process, launch: Launch) -> Lanes:
        return self._ask("transport", is_lanes, process=process, launch=launch)

    def verify(self, process: Process, lanes: Lanes, canary: Canary) -> Proof:
        return self._ask("verify", _a(Proof), process=process, lanes=lanes, canary=canary)

    def release(self, process: Process, lanes: Lanes, want: Want) -> Released:
        return self._ask("release", is_receipt, process=process, lanes=lanes, want=want)

    def kill(self, process: Process, reason: str, replaced: bool) -> Killed:
        return self._ask("kill", _a(Killed), process=process, reason=reason, replaced=replaced)

    # ---- the environment's

    @property
    def provisions(self) -> bool:
        """Whether the backend makes environments."""
        return "build" in self._provides

    def inspect(self, plan: EnvPlan, probe: bool) -> EnvState | None:
        """Return the environment's state, or None where the backend makes no environments."""
        return self._ask("inspect", _a(EnvState), plan=plan, probe=probe) if "inspect" in self._provides else None

    def plan(self, plan: EnvPlan) -> Changes:
        return self._provision("plan", Changes, plan=plan)

    def build(self, plan: EnvPlan, progress: Callable[[BuildStep], None]) -> EnvState:
        return self._provision("build", EnvState, plan=plan, progress=progress)

    def remove(self, plan: EnvPlan) -> EnvState:
        return self._provision("remove", EnvState, plan=plan)

    # ---- asking

    def _provision(self, verb: str, wanted: type, **arguments: Any) -> Any:
        if verb not in self._provides:
            raise self._broken(verb, "is not offered: it makes no environments and serves plans that name an existing interpreter")
        return self._ask(verb, _a(wanted), **arguments)

    def _ask(self, verb: str, problem_of: Callable[[Any], str], /, **arguments: Any) -> Any:
        try:
            answer = getattr(self._manager.hook, f"comfy_env_{verb}")(**arguments)
            trouble = problem_of(answer)
        except ComfyEnvError:
            raise
        except BaseException as problem:  # a hook is somebody else's code: whatever it raises gets the backend's and the verb's name
            if _from_outside(problem):
                raise
            raise self._broken(verb, f"raised {_told(problem)}", arguments.get("launch")) from problem
        if trouble:
            raise self._broken(verb, trouble, arguments.get("launch"))
        return answer

    def _changed(self, impl: Any, launch: Launch) -> Launch:
        try:
            given = impl.function(*(launch for _ in impl.argnames))
        except ComfyEnvError:
            raise
        except BaseException as problem:  # a wrapper is somebody else's code, too
            if _from_outside(problem):
                raise
            raise self._broken("launch", f"({impl.plugin_name}) raised {_told(problem)}", launch) from problem
        if given is None:
            return launch
        if not isinstance(given, Launch):
            raise self._broken("launch", f"({impl.plugin_name}) returned {_kind(given)}; a Launch or None is wanted", launch)
        changed = [name for name in FIXED if _differs(getattr(given, name), getattr(launch, name))]
        if changed:
            raise self._broken("launch", f"({impl.plugin_name}) changed {', '.join(changed)}, which no wrapper may change", launch)
        return given

    def _broken(self, verb: str, what: str, launch: Launch | None = None) -> BackendError:
        facts: dict[str, Any] = {} if launch is None else {"env": launch.env, "generation": launch.generation}
        return BackendError(f"backend {self.name!r}: {verb} {what}", **facts)


def _from_outside(problem: BaseException) -> bool:
    """Tell whether a hook was broken off by what a signal's handler raised; those run on the main thread only."""
    return isinstance(problem, KeyboardInterrupt | SystemExit) and threading.current_thread() is threading.main_thread()


def _told(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


def _differs(one: Any, other: Any) -> bool:
    return one is not other and not (isinstance(one, str | bytes | int) and type(one) is type(other) and one == other)


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__qualname__}"


def _a(wanted: type) -> Callable[[Any], str]:
    return lambda answer: "" if isinstance(answer, wanted) else f"returned {_kind(answer)}; a {wanted.__name__} is wanted"


# ---- what is wrong with an answer ("" for nothing); only the shape counts, for a backend may bring its own classes

def is_process(answer: Any) -> str:
    missing = _missing(answer, ("pid", "outputs", "data", "exit_handle", "exit_status"))
    if missing:
        return f"returned {_kind(answer)}; a Process is wanted{missing}"
    if not (answer.pid is None or type(answer.pid) is int and answer.pid > 1):
        return f"returned a Process whose pid is {answer.pid!r}; a process id or None is wanted"
    return ""


def is_lanes(answer: Any) -> str:
    missing = _missing(answer, ("main", "side", "hello", "close"))
    if missing:
        return f"returned {_kind(answer)}; Lanes are wanted{missing}"
    for which in ("main", "side"):
        missing = _missing(getattr(answer, which), ("send", "receive", "fileno", "close"))
        if missing:
            return f"returned Lanes whose {which} lane is {_kind(getattr(answer, which))}; a {Lane.__name__} is wanted{missing}"
    return ""


def is_receipt(answer: Any) -> str:
    wrong = _a(Released)(answer)
    if not wrong and not all(type(n) is int and n >= 0 for n in (answer.freed, answer.held)):
        return f"returned a receipt of freed={answer.freed!r}, held={answer.held!r}; whole numbers of bytes are wanted"
    return wrong


def _missing(answer: Any, names: tuple[str, ...]) -> str:
    absent = [name for name in names if not hasattr(answer, name)]
    return f" (no {', '.join(absent)})" if absent else ""
