"""X3, X7, X10, X11: what a worker may send, write or find, and what a host may be."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from pathlib import Path

import pytest

from comfy_env import ComfyEnvError
from comfy_env.values import CallOptions
from tests.faults.hosts import may_unshare, run_host

# ---------------------------------------------------------------- X3: a bomb in every field

class Bomb:
    """Runs a command wherever it is unpickled by anything but a closed reader."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


FIELDS = {
    "REPLY": ("value", "held"), "RAISED": ("type", "args", "text", "traceback", "held"), "REFUSED": ("error", "text"),
    "INTERRUPTED": ("held",), "PONG": ("held",), "CANARY_BACK": ("digest", "content", "versions"), "RECEIPT": ("freed", "held"),
    "PROGRESS": ("value", "total", "node", "preview"), "CALLBACK": ("name", "args", "kwargs"), "SIDE_PONG": ("anything",),
    "STAGE": ("stage",), "CHALLENGE": ("raw",), "RESPONSE": ("raw",), "HELLO": ("nonce",),
}
HANDSHAKE = ("STAGE", "CHALLENGE", "RESPONSE", "HELLO")   # raw bytes and JSON: nothing of a message's form is read at all
FORMS = {
    "in a field": lambda field, bomb: pickle.dumps({field: bomb}, 5),
    "as a key": lambda field, bomb: pickle.dumps({(field, bomb.mark.name): [bomb]}, 2),
    "instead of the message": lambda field, bomb: pickle.dumps(bomb, 0),
}


def speak(ward, plan):
    """Do everything with a worker that brings a frame of some kind back; errors are the outcome, not a failure."""
    options = CallOptions(callbacks={"name": lambda *args: 1}, on_progress=lambda progress: None)
    for ask in (
        lambda: ward.call(plan, "report", 1, options=options),
        lambda: ward.call(plan, "ask", "name", options=options),
        lambda: ward.call(plan, "jobs:fail", "text"),
        lambda: ward.pool.release(plan),
        lambda: ward.pool.seats()[0].worker.session.side(40, {}, None),
        lambda: ward.pool.seats()[0].worker.session.command(15, {}, None),
    ):
        with contextlib.suppress(ComfyEnvError, AttributeError, KeyError, TimeoutError):   # there may be no worker any more
            ask()


@pytest.mark.row("X3")
@pytest.mark.parametrize("kind", FIELDS)
def test_a_pickle_bomb_in_any_field_of_any_frame_is_never_executed(ward, fired, tmp_path, kind):
    mark = tmp_path / "exploded"
    assert pickle.loads(pickle.dumps(Bomb(mark))) == 0 and mark.exists(), "the bomb is live"
    mark.unlink()
    for number, field in enumerate(FIELDS[kind]):
        for form, make in list(FORMS.items())[-1 if kind in HANDSHAKE else 0:1 if number else 3]:
            key = f"{kind.lower()}-{number}-{len(form)}"
            plan = ward.plan(key, fault={"when": "bomb", "how": "", "kind": kind, "payload": make(field, Bomb(mark)).hex()})
            speak_to(ward, plan)
            fired(ward.fired(key))
            assert ward.fired(key), f"no {kind} was sent"
            assert not mark.exists(), (kind, field, form)
            ward.pool.kill(plan)


def speak_to(ward, plan):
    seats = ward.pool.seats
    with contextlib.suppress(ComfyEnvError):   # a bomb in the handshake or the canary ends the birth
        ward.call(plan, "echo", 1)
    ward.pool.seats = lambda: [seat for seat in seats() if seat.key == plan.key]
    try:
        speak(ward, plan)
    finally:
        ward.pool.seats = seats


# ---------------------------------------------------------------- X7: noise

@pytest.mark.row("X7")
@pytest.mark.parametrize("megabytes", [24, pytest.param(200, marks=[pytest.mark.long, pytest.mark.deadline(300)])])
def test_output_of_any_kind_and_amount_disturbs_neither_calls_nor_lanes(ward, fired, megabytes):
    plan = ward.plan()
    with fired.timed():
        assert ward.call(plan, "noise", megabytes) == megabytes
    fired(megabytes)
    assert ward.call(plan, "echo", "still here") == "still here"
    logged = sum(path.stat().st_size for path in (ward.folder / "logs").glob("*.log*"))
    assert logged < 16 << 20, "the log is turned over"
    ward.pool.kill(plan)


# ---------------------------------------------------------------- X10: odd temporary folders

WORKS = """
pool, plan = make_pool(runtime_folder=None, log_folder=None), make_plan("a")
first = pool.call(plan, "jobs:pid")
pool.kill(plan)
tell(value=pool.call(plan, "fault_pack:echo", [1, "two"]), generation=pool.record(plan).generation, folder=str(pool._house.opened.folder))
pool.close()
tell(**json.load(open(folder / "told")), left=sorted(p.name for p in Path(os.environ["TMPDIR"]).rglob("host-*")))
"""
NAMES = {"200 characters": "x" * 200, "spaced": "a b  c", "not ASCII": "é中文 [x] %TEMP% & (1)", "quoted": "it's \"here\"; $HOME `x`"}


def in_folder(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COMFY_ENV_RUNTIME", "COMFY_ENV_LOGS")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder), "HOME": str(folder), **more}


@pytest.mark.row("X10")
@pytest.mark.parametrize("name", NAMES)
def test_a_temporary_folder_with_an_odd_name_works(tmp_path, fired, name):
    odd = tmp_path / NAMES[name]
    odd.mkdir()
    with fired.timed():
        told = run_host(WORKS, tmp_path / "host", env=in_folder(odd))
    fired()
    assert (told["value"], told["generation"], told["left"]) == ([1, "two"], 2, []) and told["folder"].startswith(str(odd))


MOUNTED = 'mount -t tmpfs -o {options} tmpfs "$TMPDIR" && shift && exec "$@"'


def mounted(options: str) -> tuple[str, ...]:
    return ("unshare", "--mount", "sh", "-c", MOUNTED.format(options=options), "sh", "-")


@pytest.mark.row("X10")
def test_a_temporary_folder_nothing_may_be_executed_in_works(tmp_path, fired):
    if not may_unshare("--mount"):
        pytest.skip("no mount namespace can be had here")
    (tmp_path / "t").mkdir()
    told = run_host(WORKS, tmp_path / "host", env=in_folder(tmp_path / "t"), prefix=mounted("noexec"))
    fired()
    assert (told["value"], told["left"]) == ([1, "two"], [])


NAMED = """
pool, plan = make_pool(runtime_folder=Path(os.environ["TMPDIR"]) / "run"), make_plan("a")
try:
    pool.call(plan, "jobs:pid")
    tell(error="none")
except Exception as error:
    tell(error=type(error).__name__, text=str(error), spawned=open(f"/proc/self/task/{os.getpid()}/children").read())
pool.close()
"""


@pytest.mark.row("X10")
@pytest.mark.parametrize("options", ["ro", "size=4k,nr_inodes=2"], ids=["read-only", "full"])
def test_a_temporary_folder_nothing_can_be_written_in_is_named_with_its_setting(tmp_path, fired, options):
    if not may_unshare("--mount"):
        pytest.skip("no mount namespace can be had here")
    (tmp_path / "t").mkdir()
    told = run_host(NAMED, tmp_path / "host", env=in_folder(tmp_path / "t"), prefix=mounted(options))
    fired()
    assert told["error"] not in ("none", "OSError") and "COMFY_ENV_RUNTIME" in told["text"], told
    assert told["spawned"].strip() == ""


# ---------------------------------------------------------------- X11: odd hosts

ODD = """
import resource, signal
mode = arguments[0]
if mode == "no streams":
    for fd in (0, 1, 2):
        os.close(fd)
if mode == "SIGCHLD ignored":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if mode == "64 descriptors":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
if mode == "umask 0777":
    os.umask(0o777)
pool, facts = make_pool(), {}
try:
    plans = [make_plan(f"e{n}") for n in range(3)]
    facts["values"] = [pool.call(plan, "fault_pack:echo", n) for n, plan in enumerate(plans)]
    facts["errors"] = []
    for signum in (9, 11):
        try:
            pool.call(plans[0], "fault_pack:die", signum)
        except Exception as error:
            facts["errors"].append([type(error).__name__, getattr(error, "status", "")])
    facts["again"] = pool.call(plans[0], "fault_pack:echo", "again")
    facts["generation"] = pool.record(plans[0]).generation
    facts["orphans"] = pool.call(plans[1], "fault_pack:with_grandchild") if mode == "PID 1" else 0
    pool.kill(plans[1])
finally:
    pool.close()
from comfy_env.process import procs
facts["children"] = [row.pid for row in procs.rows() if row.parent == os.getpid()]
old = os.umask(0o022)
tell(pid=os.getpid(), **facts)
"""
MODES = {
    "PID 1": ("unshare", "--pid", "--fork", "--mount-proc"), "SIGCHLD ignored": (), "no streams": (), "64 descriptors": (),
    "umask 0777": (),
}


@pytest.mark.row("X11")
@pytest.mark.parametrize("mode", MODES)
def test_an_odd_host_serves_calls_tells_deaths_and_leaves_nobody(tmp_path, fired, mode):
    if mode == "PID 1" and not may_unshare("--pid", "--fork", "--mount-proc"):
        pytest.skip("no PID namespace can be had here")
    with fired.timed():
        told = run_host(ODD, tmp_path, mode, prefix=MODES[mode])
    fired()
    assert told["values"] == [0, 1, 2] and told["again"] == "again" and told["generation"] == 3, told
    assert [name for name, _ in told["errors"]] == ["WorkerCrashed", "WorkerCrashed"]
    wanted = ("lost", "SIGSEGV") if mode == "SIGCHLD ignored" else ("signal",)   # of a crash its own pipe tells, whoever collects it
    assert all(any(word in status for word in wanted) for _, status in told["errors"]), told
    assert told["children"] == [] and (mode != "PID 1" or told["pid"] == 1)


NOBODY = """
sys.stdout = sys.stderr = None
pool, plan = make_pool(), make_plan("a")
tell(value=pool.call(plan, "fault_pack:noise", 2))
pool.close()
"""


@pytest.mark.row("X11")
def test_a_host_without_standard_streams_in_python_still_drains_its_workers(tmp_path, fired):
    told = run_host(NOBODY, tmp_path)
    fired()
    assert told["value"] == 2


@pytest.mark.row("X11")
def test_blocked_signals_of_the_host_reach_no_worker(ward, fired):
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT})
    try:
        plan = ward.plan()
        pid = ward.call(plan, "me")
        masks = Path(f"/proc/{pid}/status").read_text()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    fired()
    line = next(line for line in masks.splitlines() if line.startswith("SigBlk"))
    ward.pool.kill(plan)
    assert not ward.alive(), line
