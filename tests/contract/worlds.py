"""The backends the contract is run over, and the stage that a rule is played on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comfy_env.backends.inprocess import InProcessBackend
from comfy_env.backends.pixi import PixiBackend
from comfy_env.backends.venv import VenvBackend
from comfy_env.envs import preloads
from comfy_env.settings import Settings
from comfy_env.testing.audit import wait_until
from comfy_env.testing.clock import MovableClock
from comfy_env.testing.fakes import FakeMemory, FakePrompt, FakeShelf
from comfy_env.testing.scripted import HOLD, Dies, ScriptedBackend
from comfy_env.testing.stage import LIMIT, PROBE, Stage
from comfy_env.values import CallOptions, EnvPlan, ExitStatus
from tests.made_envs import lay_out, make_venv

CODE = Path(__file__).parents[1] / "code"


class Play(Stage):
    """A stage whose ports are fakes. ``clock`` is the pool's clock where the test moves it, else None."""

    def __init__(self, backend: Any, plan: EnvPlan, folder: Path, settings: Settings, clock: MovableClock | None) -> None:
        self.clock = clock
        self.backend = backend
        self.shelf, self.prompt, self.memory = FakeShelf(), FakePrompt(), FakeMemory()
        super().__init__(backend, plan, folder, settings, clock=clock, shelf=self.shelf, prompt=self.prompt, memory=self.memory)

    @property
    def seat(self) -> Any:
        return next(seat for seat in self.pool.seats() if seat.key == self.plan.key)

    @property
    def record(self) -> Any:
        return self.pool.record(self.plan)

    def limited(self, **limits: float) -> None:
        """Give the environment limits of its own; before its first call."""
        self.plan = replace(self.plan, limits=limits)

    def other(self, key: str) -> EnvPlan:
        return replace(self.plan, key=key)

    def run(self, target: str, *args: Any, plan: EnvPlan | None = None, **options: Any) -> Any:
        return self.begin(target, *args, plan=plan, **options).result(LIMIT)

    def begin(self, target: str, *args: Any, plan: EnvPlan | None = None, **options: Any) -> Any:
        """Call any target on a thread of its own and return the future."""
        return self._threads.submit(self.pool.call, plan or self.plan, target, *args, options=CallOptions(**options))

    def on_a_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._threads.submit(function, *args)

    def advance(self, seconds: float) -> None:
        """Let time pass and have the pool look at it once."""
        assert self.clock is not None
        self.clock.advance(seconds)
        self.pool.tick()

    def held(self, function: str = "hold") -> Any:
        """As on the stage; its asker has sent everything and waits for the answer, so that from here on the worker is who is silent."""
        (self.folder / "began").unlink(missing_ok=True)
        future = super().held(function)
        wait_until(lambda: future.done() or self._asker_waits(), LIMIT, "its asker waits for the answer")
        return future

    def _asker_waits(self) -> bool:
        worker = self.seat.worker
        return worker is None or worker.session is None or worker.session._mail._reading

    def serve(self) -> None:
        """Have a worker, proved and idle."""
        assert self.call("add", 1, 1) == 2

    def state(self) -> str:
        return self.seat.env.row.state.value

    def settled(self) -> bool:
        """Tell whether the environment's worker is gone."""
        return self.state() in ("cold", "gone", "parked")

    def worker_grows(self, held: int) -> None:
        """Let the next answer tell that the worker holds so many bytes."""
        self.run("jobs:hold_bytes", held)


class ForkedPlay(Play):
    """The same over an environment whose zygote forks every worker, from the first on."""

    def __init__(self, backend: Any, plan: EnvPlan, folder: Path, settings: Settings, clock: MovableClock | None) -> None:
        super().__init__(backend, plan, folder, settings, clock)
        self._lay_out(self.plan)

    def other(self, key: str) -> EnvPlan:
        plan = super().other(key)
        self._lay_out(plan)
        return plan

    def _lay_out(self, plan: EnvPlan) -> None:
        if not preloads.folder_of(plan, self.pool.settings):
            lay_out(self.backend, plan, self.pool.settings, VENVS["contract"], imports=["PIL"])


class ScriptedPlay(Play):
    """The same over a worker that is a script: calls that stay are ended by the test's own hand."""

    def __init__(self, backend: ScriptedBackend, plan: EnvPlan, folder: Path, settings: Settings, clock: MovableClock | None) -> None:
        backend.functions = scripts(backend, folder)
        super().__init__(backend, plan, folder, settings, clock)

    def go(self) -> None:
        super().go()
        while self.backend.open_calls:
            self.backend.open_calls.pop().reply("gone")

    def worker_grows(self, held: int) -> None:
        self.call("add", 1)  # a worker is born holding nothing
        self.backend.held = held
        self.call("add", 1)


def scripts(backend: ScriptedBackend, folder: Path) -> Mapping[str, Callable[..., Any]]:
    """Return what the script answers for the functions of the contract's probe."""
    counts: dict[int, int] = {}

    def count() -> int:
        counts[id(backend.process)] = counts.get(id(backend.process), 0) + 1
        return counts[id(backend.process)]

    def fail(text: str) -> None:
        raise ValueError(text)

    def die(how: str) -> None:
        raise Dies(ExitStatus(code=0) if how == "exit" else ExitStatus(signal={"kill": 9, "segv": 11}[how]))

    def hold(where: str) -> object:
        (Path(where) / "began").write_text(f"{os.getpid()}\n")
        return HOLD

    def alone(where: str) -> bool:
        return len(backend.open_calls) == 0

    given = {"add": lambda a, b=0: a + b, "count": count, "fail": fail, "die": die, "hold": hold, "hold_native": hold, "alone": alone}
    return {f"{PROBE}:{name}": function for name, function in given.items()}


@dataclass(frozen=True)
class World:
    """One backend: how to make it and the plan its workers are made for, and what it claims."""

    name: str
    capabilities: frozenset[str]
    make: Callable[[Settings, Path], tuple[Any, EnvPlan]]
    play: type[Play] = Play


def _scripted(settings: Settings, place: Path) -> tuple[Any, EnvPlan]:
    return ScriptedBackend(), EnvPlan(key="contract", backend="scripted")


def _in_process(settings: Settings, place: Path) -> tuple[Any, EnvPlan]:
    return InProcessBackend(), EnvPlan(key="contract", backend="in-process", import_roots=(CODE,))


def _venv(settings: Settings, place: Path) -> tuple[Any, EnvPlan]:
    return VenvBackend(settings), EnvPlan.existing(sys.executable, "contract", import_roots=(CODE,))


def _pixi(settings: Settings, place: Path) -> tuple[Any, EnvPlan]:
    """Use an environment laid out as pixi leaves it in a project's folder; it is there, so no pixi is needed."""
    project = place / "pixi-project"
    if not project.exists():
        made = project / ".pixi" / "envs" / "default"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True, timeout=60)
        (project / "pixi.toml").write_text('[workspace]\nname = "there"\nchannels = []\nplatforms = ["linux-64"]\n')
    return PixiBackend(settings), EnvPlan("contract", backend="pixi", root=project, import_roots=(CODE,))


VENVS: dict[str, Path] = {}
"""The virtual environment that every forked world uses, made once."""


def _venv_zygote(settings: Settings, place: Path) -> tuple[Any, EnvPlan]:
    if not (place / "zygote").exists():
        (place / "zygote").mkdir()
        VENVS["contract"] = make_venv(place / "zygote")
    return VenvBackend(settings), EnvPlan("contract", import_roots=(CODE,))


WORLDS = {world.name: world for world in (
    World("scripted", ScriptedBackend.capabilities, _scripted, ScriptedPlay),
    World("in-process", InProcessBackend.capabilities, _in_process),
    World("venv", VenvBackend.capabilities, _venv),
    World("pixi", PixiBackend.capabilities, _pixi),
    World("venv-zygote", VenvBackend.capabilities, _venv_zygote, ForkedPlay),
)}
REAL = ("venv", "pixi", "venv-zygote")


def stop(pid: int) -> None:
    """Stop a process and return when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(_state(task) in "TZX" for task in Path(f"/proc/{pid}/task").iterdir()), LIMIT, "the process is stopped")


def _state(task: Path) -> str:
    return (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]


def over(*names: str) -> Callable[[Any], Any]:
    """Run a rule over these backends only: for the others its subject does not exist."""

    def mark(test: Any) -> Any:
        test.contract_over = names
        return test

    return mark
