"""Provokes every error of the package for real and shows what a user reads, for the errors page.

What differs from run to run and from machine to machine is replaced: process numbers, times, digests, paths, versions.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from comfy_env import errors
from comfy_env.envs import paths, stamps
from comfy_env.hooks import Registry
from comfy_env.packs.plan import EnvPlan
from comfy_env.pool import WorkerPool
from comfy_env.settings import Settings
from comfy_env.testing.scripted import ScriptedBackend
from comfy_env.testing.spies import Spy
from comfy_env.transport.channel import SocketLane
from comfy_env.transport.codec import HostCodec
from comfy_env.values import CallOptions, Conda
from comfy_env.worker.wire.kinds import Kind

LIMIT = 60.0
PACK = '''
import os, sys, threading, time

class Mesh:
    pass

def make_mesh(): return Mesh()

def vertices(mesh): return 3

def blur(radius):
    if radius < 0:
        raise ValueError("the radius must not be negative: %r" % radius)

def load_weights():
    print("loading weights of 4.2 GB", flush=True)
    os.abort()

def sample():
    time.sleep(600)

def deaf(go):
    while not os.path.exists(go):
        try:
            time.sleep(0.01)
        except BaseException:
            continue

def tell():
    from comfy_env.worker import callback
    callback.report_progress(1, 2)

def ask(name):
    from comfy_env.worker import callback
    return callback.call_host(name)
'''
BOMB = b"\x80\x04cposix\nsystem\n(X\x06\x00\x00\x00reboottR."


class Place:
    """A folder with a pack in it, pools over it, and what a provocation needs besides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "my-pack"
        self.root.mkdir()
        self.ended: errors.ComfyEnvError | None = None
        (self.root / "my_pack.py").write_text(PACK)

    def settings(self, **more: Any) -> Settings:
        folders = {name: self.folder / name.split("_")[0] for name in ("runtime_folder", "log_folder", "envs_folder")}
        return Settings(**folders, uv="off", **more)

    def plan(self, key: str = "my-pack", python: str | Path = sys.executable, **more: Any) -> EnvPlan:
        return EnvPlan.existing(python, key, root=self.root, **more)

    @contextmanager
    def pool(self, spy: Spy | None = None, **settings: Any) -> Iterator[WorkerPool]:
        given = self.settings(**settings)
        with WorkerPool(given, registry=Registry(wrappers=[spy] if spy else [], settings=given, find=lambda group: ())) as pool:
            yield pool

    def program(self, text: str) -> Path:
        path = self.folder / "program"
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
        return path

    @contextmanager
    def running(self, pool: WorkerPool, plan: EnvPlan, target: str, *args: Any) -> Iterator[None]:
        """Have a call run meanwhile; it is interrupted afterwards."""

        def call() -> None:
            try:
                pool.call(plan, target, *args)
            except errors.ComfyEnvError as error:
                self.ended = error

        thread = threading.Thread(target=call)
        thread.start()
        _until(lambda: any(record.state == "busy" for record in pool.records()) or not thread.is_alive())
        if not thread.is_alive():
            raise self.ended
        try:
            yield
        finally:
            pool.interrupt(plan)
            thread.join(LIMIT)

    def build(self, words: str) -> None:
        """Build a conda environment with a pixi that says these words and fails."""
        path = self.program(f'case "$1" in --version) echo pixi 0.60.0;; *) echo "{words}" >&2; exit 1;; esac\n')
        with self.pool(pixi=str(path)) as pool:
            pool.build(EnvPlan(key="my-pack", backend="pixi", root=self.root, conda=Conda(("conda-forge",), ("ffmpeg >=99",))))


def _until(question: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(int(LIMIT / 0.005)):
        if question():
            return
        pause.wait(0.005)
    raise TimeoutError("an example's scene was never set")


EXAMPLES: dict[type[errors.ComfyEnvError], tuple[str, Callable[[Place], object]]] = {}


def example(kind: type[errors.ComfyEnvError], scene: str) -> Callable[[Callable[[Place], object]], Callable[[Place], object]]:
    """Make a function the example of an error; `scene` says what happens in it."""

    def keep(provoke: Callable[[Place], object]) -> Callable[[Place], object]:
        EXAMPLES[kind] = (scene, provoke)
        return provoke

    return keep


# ---------------------------------------------------------------- calls

@example(errors.CallFailed, "A callback calls the very environment that waits for it.")
def reentrant(place: Place) -> None:
    seen: list[errors.ComfyEnvError] = []

    def back() -> None:
        try:
            pool.call(plan, "my_pack:make_mesh")
        except errors.CallFailed as error:
            seen.append(error)

    with place.pool() as pool:
        plan = place.plan()
        pool.call(plan, "my_pack:ask", "back", options=CallOptions(callbacks={"back": back}))
    raise seen[0]


@example(errors.NodeRaised, "The function raised an exception; its class is known here, so it is the error's cause.")
def raised(place: Place) -> None:
    with place.pool() as pool:
        pool.call(place.plan(), "my_pack:blur", -1)


@example(errors.WorkerCrashed, "Native code aborts in the middle of a call.")
def crashed(place: Place) -> None:
    with place.pool() as pool:
        pool.call(place.plan(), "my_pack:load_weights")


@example(errors.CallSilent, "A call shows no progress for longer than its limit.")
def silent(place: Place) -> None:
    with place.pool() as pool:
        pool.call(place.plan(), "my_pack:sample", options=CallOptions(silence=0.3))


@example(errors.Interrupted, "Somebody interrupts a call.")
def interrupted(place: Place) -> None:
    with place.pool() as pool, place.running(pool, place.plan(), "my_pack:sample"):
        pass
    raise place.ended


@example(errors.ReferenceLost, "An object stayed in its worker, and that worker is gone.")
def reference(place: Place) -> None:
    with place.pool() as pool:
        plan = place.plan()
        mesh = pool.call(plan, "my_pack:make_mesh")
        pool.kill(plan)
        pool.call(plan, "my_pack:vertices", mesh)


@example(errors.HookStopped, "A progress hook of an awaited call raises StopIteration.")
def stopped(place: Place) -> None:
    def hear(progress: object) -> None:
        raise StopIteration("seen enough")

    with place.pool() as pool:
        asyncio.run(pool.call_async(place.plan(), "my_pack:tell", options=CallOptions(on_progress=hear)))


@example(errors.CallWithdrawn, "A caller waits for the lane no longer than it said.")
def withdrawn(place: Place) -> None:
    with place.pool() as pool, place.running(pool, place.plan(), "my_pack:sample"):
        pool.call(place.plan(), "my_pack:blur", 1, options=CallOptions(wait=0.05))


# ---------------------------------------------------------------- births

@example(errors.SpawnFailed, "The backend does not come back from its spawn.")
def late(place: Place) -> None:
    spy, gate = Spy(), threading.Event()
    spy.before["spawn"] = lambda launch: gate.wait(LIMIT)
    try:
        with place.pool(spy, spawn=0.2) as pool:
            try:
                pool.call(place.plan(), "my_pack:blur", 1)
            finally:
                gate.set()
    finally:
        gate.set()


@example(errors.InterpreterMissing, "The plan names an interpreter that is not there.")
def missing(place: Place) -> None:
    with place.pool() as pool:
        pool.call(place.plan(python="/opt/python3.9/bin/python"), "my_pack:blur", 1)


@example(errors.DiedBeforeJoining, "The interpreter ends at once.")
def died(place: Place) -> None:
    python = place.program("echo 'error while loading shared libraries: libpython3.9.so.1.0' >&2\nexit 127\n")
    with place.pool() as pool:
        pool.call(place.plan(python=python), "my_pack:blur", 1)


@example(errors.BirthSilent, "The interpreter starts and says nothing more.")
def birth(place: Place) -> None:
    with place.pool(birth=0.3) as pool:
        pool.call(place.plan(python=place.program("echo reading the registry\nexec sleep 600\n")), "my_pack:blur", 1)


@example(errors.TransportRefused, "What the worker sends back is not what it was sent.")
def refused(place: Place) -> None:
    spy = Spy()
    spy.after["verify"] = lambda proof: replace(proof, echo="0" * 64)
    with place.pool(spy) as pool:
        pool.call(place.plan(), "my_pack:blur", 1)


@example(errors.EnvNotBuilt, "A node of an environment runs that nobody built.")
def unbuilt(place: Place) -> None:
    with place.pool() as pool:
        pool.call(EnvPlan(key="my-pack", root=place.root, dependencies=("numpy<2",)), "my_pack:blur", 1)


@example(errors.EnvMoved, "An environment was copied from elsewhere.")
def moved(place: Place) -> None:
    plan = EnvPlan(key="my-pack", root=place.root)
    folder = paths.env_folder(plan, place.settings())
    (folder / "build").mkdir(parents=True)
    (folder / "build" / "python").symlink_to(sys.executable)
    facts = {"python": "3.10.13", "base": sys.executable, "tool": "uv", "built": "2026-01-01"}
    stamps.write(folder, stamps.Stamp("my-pack", stamps.plan_hash(plan), "/home/somebody/envs/my-pack", "build", "python", **facts))
    with place.pool() as pool:
        pool.call(plan, "my_pack:blur", 1)


@example(errors.Parked, "The environment's workers die again and again.")
def parked(place: Place) -> None:
    with place.pool(crash_limit=2) as pool:
        for _ in range(2):
            try:
                pool.call(place.plan(), "my_pack:load_weights")
            except errors.WorkerCrashed:
                _until(lambda: not pool.records())
        pool.call(place.plan(), "my_pack:blur", 1)


@example(errors.Wedged, "A worker that is a thread of this process does not end.")
def wedged(place: Place) -> None:
    go = place.folder / "go"
    plan = EnvPlan(key="my-pack", backend="in-process", root=place.root)
    with place.pool(kill=0.2) as pool, place.running(pool, plan, "my_pack:deaf", str(go)):
        pool.kill(plan)
        try:
            pool.call(plan, "my_pack:blur", 1)
        finally:
            go.touch()
            _until(lambda: not pool.records())


# ---------------------------------------------------------------- pool, lanes, values

@example(errors.PoolClosed, "A call comes after the pool was closed.")
def closed(place: Place) -> None:
    with place.pool() as pool:
        pass
    pool.call(place.plan(), "my_pack:blur", 1)


@example(errors.LaneBusy, "A release is asked of a worker that computes.")
def busy(place: Place) -> None:
    with place.pool(command_lock=0.2) as pool, place.running(pool, place.plan(), "my_pack:sample"):
        pool.release(place.plan())


@example(errors.LaneLost, "A command meets a connection that has ended.")
def lost(place: Place) -> None:
    with place.pool() as pool:
        pool.call(place.plan(), "my_pack:blur", 1)
        session = pool.seats()[0].worker.session
        session.close()
        session.command(Kind.PING, {})


@example(errors.FrameDamaged, "Something else than a frame arrives on a lane.")
def damaged(place: Place) -> None:
    near, far = socket.socketpair()
    lane = SocketLane(near)
    with far:
        far.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 4)
        try:
            lane.receive()
        finally:
            lane.close()


@example(errors.DecodeRefused, "A message asks the host to call a function of its own.")
def bomb(place: Place) -> None:
    HostCodec("my-pack", 1, {}).decode(BOMB)


@example(errors.EncodeRefused, "An argument holds a lock.")
def unsendable(place: Place) -> None:
    with place.pool() as pool:
        pool.call(place.plan(), "my_pack:blur", {"opts": {"hooks": [1, threading.Lock()]}})


@example(errors.PlanError, "A table names a key that does not exist.")
def misspelled(place: Place) -> None:
    (place.root / "pyproject.toml").write_text('[project]\nname = "my-pack"\n\n[tool.comfy-env]\npyton = "3.10"\n')
    EnvPlan.from_pack(place.root)


# ---------------------------------------------------------------- builds and backends

@example(errors.BuildFailed, "An interpreter that is to be used as it is cannot be used.")
def unusable(place: Place) -> None:
    with place.pool() as pool:
        pool.build(place.plan(python="/opt/python3.9/bin/python"))


@example(errors.BuildCancelled, "Somebody cancels a build from its progress.")
def cancelled(place: Place) -> None:
    def hear(step: Any) -> None:
        raise errors.BuildCancelled("the build was cancelled", env=step.key, hint="build again: what was fetched is still there")

    with place.pool() as pool:
        pool.build(EnvPlan(key="my-pack", root=place.root), hear)


@example(errors.ToolTooOld, "The pixi on this machine is older than what is needed.")
def old(place: Place) -> None:
    with place.pool(pixi=str(place.program("echo pixi 0.12.0\n"))) as pool:
        pool.build(EnvPlan(key="my-pack", backend="pixi", root=place.root, conda=Conda(("conda-forge",), ("ffmpeg",))))


@example(errors.Unsatisfiable, "No version of a package satisfies what is asked.")
def unsatisfiable(place: Place) -> None:
    place.build("Cannot solve the request because of: No candidates were found for ffmpeg >=99.")


@example(errors.PlatformMissing, "A workspace is not declared for this machine.")
def platform(place: Place) -> None:
    place.build("The workspace does not support 'linux-64'.")


@example(errors.PackageDamaged, "A package is not what its channel says it is.")
def package(place: Place) -> None:
    place.build("hash mismatch for package ffmpeg-6.1.1-hf3c1e1d_0.conda")


@example(errors.BackendError, "A backend's hook returns nothing.")
def backend(place: Place) -> None:
    broken = ScriptedBackend()
    broken.faults["spawn"] = None
    registry = Registry(find=lambda group: ())
    registry.register("my-backend", broken)
    with WorkerPool(place.settings(), registry=registry) as pool:
        pool.call(EnvPlan(key="my-pack", backend="my-backend"), "my_pack:blur", 1)


# ---------------------------------------------------------------- telling

@functools.cache
def told() -> dict[type[errors.ComfyEnvError], tuple[str, str]]:
    """Return the scene and the message of every error, provoked now; raises AssertionError where another error came."""
    return {kind: (scene, _provoked(kind, provoke)) for kind, (scene, provoke) in EXAMPLES.items()}


def _provoked(kind: type[errors.ComfyEnvError], provoke: Callable[[Place], object]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            provoke(Place(Path(folder).resolve()))
        except errors.ComfyEnvError as error:
            assert type(error) is kind, f"{provoke.__name__} raised {type(error).__name__} instead of {kind.__name__}: {error}"
            return _steady(str(error), str(Path(folder).resolve()))
    raise AssertionError(f"{provoke.__name__} raised nothing")


def _steady(text: str, folder: str) -> str:
    """Replace what differs between runs and machines."""
    lines = [line for line in text.splitlines() if not _is_noise(line)]
    text = "\n".join(lines).replace(folder, "/…").replace(sys.executable, "/…/python").replace(sys.version.split()[0], "3.X.Y")
    for pattern, word in STEADY:
        text = pattern.sub(word, text)
    return text


def _is_noise(line: str) -> bool:
    """Tell whether a line is of a stack and not of the pack's own code."""
    return NOISE.match(line) is not None and "my_pack.py" not in line


NOISE = re.compile(r'  +(File "|Thread |Current thread|Fatal Python error: |\^|~)| +$')
STEADY = [(re.compile(pattern), word) for pattern, word in (   # whether an exit was seen already is a matter of luck
    (r"(pid \S+), exited with status \d+\]", r"\1]"),
    (r"\bpid \d+", "pid N"), (r"\bprocess \d+", "process N"), (r"(?m)(started )?(just now|\d+ s ago)(?=,|$)", r"\1… ago"),
    (r"(?<!started) … ago", ""),
    (r"\b[0-9a-f]{64}\b", "…"), (r"host-[0-9a-f]{32}", "host-…"), (r"(linux|osx|win)-(64|aarch64|arm64)", "PLATFORM"),
    (r"build-[\w.-]+\.log", "build-….log"), (r"0x[0-9a-f]+", "0x…"), (r"cpython-\d+", "cpython-3XX"),
    (r"envs/[\w.-]*-[0-9a-f]{6,}", "envs/my-pack-…"), (r"tried again in \d+\.\d s", "tried again in 30.0 s"),
)]
