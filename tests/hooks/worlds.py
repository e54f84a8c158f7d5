"""A backend of plain values for the tests of the hooks: no process, no lane, every verb says what it was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comfy_env.hooks import hookimpl
from comfy_env.values import EnvPlan, Killed, Lanes, Launch, Proof, Released


class StillEndpoint:
    child_fds = ()
    boot_fd = -1

    def child_started(self) -> None:
        """There is no child."""

    def close(self) -> None:
        """Nothing is open."""


class StillProcess:
    pid = None
    outputs = ()
    data = None

    def exit_handle(self) -> None:
        return None

    def exit_status(self) -> None:
        return None


class StillLane:
    def send(self, frame: Any, deadline: float | None = None) -> None:
        raise AssertionError("no test sends here")

    def receive(self, deadline: float | None = None, also: tuple[int, ...] = ()) -> Any:
        raise AssertionError("no test receives here")

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


class Plain:
    """A right backend. `answers` replaces what a verb returns; an exception there is raised."""

    capabilities: Any = frozenset()

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def _answer(self, verb: str, usual: Any) -> Any:
        self.asked.append(verb)
        answer = self.answers.get(verb, usual)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @hookimpl
    def comfy_env_spawn(self, launch):
        return self._answer("spawn", StillProcess())

    @hookimpl
    def comfy_env_transport(self, process, launch):
        return self._answer("transport", Lanes(StillLane(), StillLane()))

    @hookimpl
    def comfy_env_verify(self, process, lanes, canary):
        return self._answer("verify", Proof(cpu=canary.digest))

    @hookimpl
    def comfy_env_release(self, process, lanes, want):
        return self._answer("release", Released(1, 2))

    @hookimpl
    def comfy_env_kill(self, process, reason, replaced):
        return self._answer("kill", Killed())


def a_launch(**more: Any) -> Launch:
    facts: dict[str, Any] = {
        "env": "demo", "generation": 3, "plan": EnvPlan(key="demo"), "argv": ("python", "worker"), "cwd": Path("/"),
        "variables": {"A": "1"}, "import_roots": (), "run_folder": Path("/"), "worker_folder": Path("/"),
        "nonce": "n", "host_nonce": "h", "endpoint": StillEndpoint(), "auth_key": b"k",
    }
    return Launch(**{**facts, **more})
