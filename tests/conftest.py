"""What every test may rely on and must not do: fixtures for waiting and interpreters, audits of what is left behind.

A test that leaves a process, thread, descriptor, shared-memory name or folder fails by itself, not the one after it.
Things that wind down by themselves get two seconds for it; a clean test pays about a millisecond.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MARK = "CENV_TEST_RUN"
"""Rides in the environment of everything a test starts, however deep."""

GRACE = 2.0
KINDS = ("thread", "process", "fd", "shm", "folder")
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
QUIET_FILES = ("/dev/urandom", "/dev/null", "/.hypothesis/", "/proc/")


class DeadlineMissed(Exception):
    """A test took longer than its deadline; all stacks were written to its stderr."""


# ---------------------------------------------------------------- a private place for the whole run

def pytest_configure(config: pytest.Config) -> None:
    """Give the run its own temporary, runtime, log and environments folder, and mark what it will start."""
    place = Path(tempfile.mkdtemp(prefix="cenv-"))
    config.addinivalue_line("markers", "row(*ids): the rows of the reliability table (docs/reference/reliability.md) that this test shows")
    config.addinivalue_line("markers", "long: takes minutes; left out unless asked for by `-m long`")
    config.addinivalue_line("markers", "alone: runs in an interpreter of its own, as tests must that trace or profile one")
    config.stash[PLACE] = place
    config.stash[STDERR] = os.dup(2)
    config.stash[BEFORE] = {name: os.environ.get(name) for name in ("TMPDIR", MARK, *FOLDERS)}
    os.environ[MARK] = secrets.token_hex(8)
    for name, folder in {"TMPDIR": "t", **FOLDERS}.items():
        os.environ[name] = str(place / folder)
    (place / "t").mkdir()
    tempfile.tempdir = None


def pytest_unconfigure(config: pytest.Config) -> None:
    place = config.stash.get(PLACE, None)
    if place is None:
        return
    for name, value in config.stash[BEFORE].items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    tempfile.tempdir = None
    os.close(config.stash[STDERR])
    shutil.rmtree(place, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless it was asked for: `make test ARGS="-m long"`."""
    if "long" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked `alone` in a fresh interpreter: CPython 3.11 can spin for ever in code it has specialised once traced."""
    if ALONE in os.environ or not pyfuncitem.get_closest_marker("alone"):
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    done = subprocess.run(command, cwd=pyfuncitem.config.rootpath, env={**os.environ, ALONE: "1"}, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"in an interpreter of its own:\n{done.stdout}{done.stderr}", pytrace=False)
    return True


ALONE = "CENV_TEST_ALONE"
PLACE: pytest.StashKey[Path] = pytest.StashKey()
STDERR: pytest.StashKey[int] = pytest.StashKey()
BEFORE: pytest.StashKey[dict[str, str | None]] = pytest.StashKey()
FOLDERS = {"COMFY_ENV_RUNTIME": "run", "COMFY_ENV_LOGS": "logs", "COMFY_ENV_ENVS": "envs"}


@pytest.fixture(scope="session")
def place(pytestconfig: pytest.Config) -> Path:
    """The run's private folder; tests may look at it but have `tmp_path` for their own things."""
    return pytestconfig.stash[PLACE]


# ---------------------------------------------------------------- deadline

@pytest.fixture(autouse=True)
def _deadline(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test at its deadline with all stacks; end the whole run 30 s later if even that does not stop it."""
    marker = request.node.get_closest_marker("deadline")
    slow = request.node.get_closest_marker("slow") or request.node.get_closest_marker("real")
    seconds = marker.args[0] if marker else 420 if slow else 90
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def missed(signum: int, frame: object) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        raise DeadlineMissed(f"{request.node.nodeid} took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, missed)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + 30, exit=True, file=request.config.stash[STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------- audits

@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest, place: Path, _deadline: None) -> Iterator[None]:
    """Compare what lives before and after the test; name what is new."""
    marker = request.node.get_closest_marker("shares")
    shared = set(marker.args) if marker else set()
    kinds = [kind for kind in KINDS if kind not in shared]
    before = {kind: LOOK[kind](place) for kind in kinds}
    yield
    limit = time.monotonic() + GRACE
    left = _left(kinds, before, place)
    while left and time.monotonic() < limit:
        gc.collect()
        time.sleep(0.02)
        left = _left(kinds, before, place)
    if left:
        pytest.fail("the test left behind:\n" + "\n".join(f"  {line}" for line in left), pytrace=False)


def _left(kinds: list[str], before: dict[str, dict], place: Path) -> list[str]:
    return [f"{kind}: {text}" for kind in kinds for key, text in LOOK[kind](place, before[kind]).items() if key not in before[kind]]


def _threads(place: Path, known: object = ()) -> dict[object, str]:
    return {id(thread): f"{thread.name} (daemon={thread.daemon})" for thread in threading.enumerate()}


def _processes(place: Path, known: object = None) -> dict[object, str]:
    """All pids when `known` is None, else the new ones that are our children or carry our mark."""
    pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} if os.path.isdir("/proc") else set()
    if known is None:
        return dict.fromkeys(pids, "")
    found = ((pid, _ours(pid)) for pid in pids.difference(known))
    return {pid: f"{pid} {text}" for pid, text in found if text}


def _ours(pid: int) -> str:
    """What a process of this run is doing, '' for anybody else's."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:160]
        state, parent = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        return ""
    if any(helper in words for helper in HELPERS):
        return ""
    if int(parent) == os.getpid():
        return f"child, state {state}: {words}"
    try:
        marked = f"{MARK}={os.environ[MARK]}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    return f"descendant, state {state}: {words}" if marked else ""


def _descriptors(place: Path, known: object = ()) -> dict[object, str]:
    found: dict[object, str] = {}
    with contextlib.suppress(FileNotFoundError):  # no /proc on this platform
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                target = os.readlink(f"/proc/self/fd/{name}")
                if not any(quiet in target for quiet in QUIET_FILES):
                    found[(name, target)] = f"{name} -> {target}"
    return found


def _names(place: Path, known: object = ()) -> dict[object, str]:
    """Names in shared memory, but for temporary files by which other programs of this machine come and go."""
    with contextlib.suppress(FileNotFoundError):  # no /dev/shm on this platform
        return {name: name for name in os.listdir("/dev/shm") if not name.startswith(("tmp", "sem."))}   # semaphores: of other programs
    return {}


def _folders(place: Path, known: object = ()) -> dict[object, str]:
    found: dict[object, str] = {}
    for folder, wanted in (("t", ""), ("run", "host-")):
        with contextlib.suppress(FileNotFoundError):
            found.update({(folder, name): str(place / folder / name) for name in os.listdir(place / folder)
                          if name.startswith(wanted) and not name.startswith("pytest-of-")})
    return found


LOOK: dict[str, Callable[..., dict[object, str]]] = {
    "thread": _threads, "process": _processes, "fd": _descriptors, "shm": _names, "folder": _folders,
}


# ---------------------------------------------------------------- helpers for tests

@pytest.fixture(scope="session")
def eventually() -> Callable[..., object]:
    """`eventually(question, seconds=10)` polls until the answer is true and returns it; fails at its deadline."""

    def wait(question: Callable[[], object], seconds: float = 10.0, what: str = "") -> object:
        limit = time.monotonic() + seconds
        while not (answer := question()):
            if time.monotonic() > limit:
                pytest.fail(f"not within {seconds} s: {what or question}")
            time.sleep(0.005)
        return answer

    return wait


@pytest.fixture(scope="session")
def interpreters() -> dict[str, Path]:
    """The Python 3.9 to 3.13 of this machine that really run, by 'major.minor'."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": Path(sys.executable)}
    for minor in range(9, 14):
        version = f"3.{minor}"
        for candidate in _candidates(version):
            if version not in found and _runs_as(candidate, version):
                found[version] = candidate
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def _candidates(version: str) -> Iterator[Path]:
    for root in _pyenv_roots():
        yield from sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    for folder in os.get_exec_path():
        path = Path(folder, f"python{version}")
        if path.exists():
            yield path


@functools.cache
def _pyenv_roots() -> tuple[Path, ...]:
    """Where pyenv lies, and where it says its versions are: with another HOME it names the wrong place."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return ()
    answer = subprocess.run([pyenv, "root"], capture_output=True, text=True, timeout=20, check=False)
    told = (Path(answer.stdout.strip()),) if answer.returncode == 0 and answer.stdout.strip() else ()
    return (Path(pyenv).resolve().parents[1], *told)


def _runs_as(path: Path, version: str) -> bool:
    """Whether it is what its name says: version managers leave programs that only print an error."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([str(path), "-I", "-c", ask], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version
