"""Wrappers that the contract's tests put around the backend under test: they count, keep, and plant faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from comfy_env.hooks import hookimpl
from comfy_env.values import Canary, Forker, Killed, Lanes, Launch, Process, Proof, Released, Want


class Spy:
    """Sees each verb. ``lies`` makes the proofs wrong, ``variables`` are added to what is started, ``forker`` is
    asked to fork it.

    ``before`` maps a verb to what runs before the backend's own (given the launch, or else the process), ``after`` a verb
    to what makes the outcome another.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.processes: list[Process] = []
        self.lanes: list[Lanes] = []
        self.killed: list[Killed] = []
        self.spawn_seconds: list[float] = []
        self.told: list[str] = []
        self.lies = False
        self.variables: dict[str, str] = {}
        self.forker: Forker | None = None
        self.before: dict[str, Callable[[Any], object]] = {}
        self.after: dict[str, Callable[[Any], Any]] = {}
        self._lock = threading.Lock()

    @property
    def spawns(self) -> int:
        return len(self.launches)

    def _begin(self, verb: str, subject: Launch | Process) -> None:
        if verb in self.before:
            self.before[verb](subject)

    def _tell(self, verb: str, kept: list[Any], outcome: Any) -> Any:
        with self._lock:
            self.told.append(verb)
            kept.append(outcome)
        return self.after[verb](outcome) if verb in self.after else outcome

    @hookimpl
    def comfy_env_launch(self, launch: Launch) -> Launch:
        return replace(launch, variables={**launch.variables, **self.variables}, forker=self.forker or launch.forker)

    @hookimpl(wrapper=True)
    def comfy_env_spawn(self, launch: Launch) -> Generator[None, Process, Process]:
        began = time.monotonic()
        self.launches.append(launch)
        self._begin("spawn", launch)
        process = yield
        self.spawn_seconds.append(time.monotonic() - began)
        return self._tell("spawn", self.processes, process)

    @hookimpl(wrapper=True)
    def comfy_env_transport(self, process: Process, launch: Launch) -> Generator[None, Lanes, Lanes]:
        self._begin("transport", launch)
        return self._tell("transport", self.lanes, (yield))

    @hookimpl(wrapper=True)
    def comfy_env_verify(self, process: Process, lanes: Lanes, canary: Canary) -> Generator[None, Proof, Proof]:
        self._begin("verify", process)
        proof = yield
        return self._tell("verify", [], replace(proof, cpu="not the digest") if self.lies else proof)

    @hookimpl(wrapper=True)
    def comfy_env_release(self, process: Process, lanes: Lanes, want: Want) -> Generator[None, Released, Released]:
        self._begin("release", process)
        return self._tell("release", [], (yield))

    @hookimpl(wrapper=True)
    def comfy_env_kill(self, process: Process, reason: str, replaced: bool) -> Generator[None, Killed, Killed]:
        self._begin("kill", process)
        return self._tell("kill", self.killed, (yield))
