"""Where shared memory, address space, descriptors or memory run short, a value is delivered or refused by name."""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from comfy_env.errors import ComfyEnvError, EncodeRefused
from comfy_env.worker.wire import headroom, segments
from comfy_env.worker.wire.faults import NoRoom
from comfy_env.worker.wire.headroom import RESERVE, Headroom
from tests.arena.kit import arena_worker, descriptors, prove
from tests.process.kit import shared_names
from tests.transport.workers import until

COUNT = 100_000   # float32: 400 kB
MIB = 1 << 20


# ---------------------------------------------------------------- no shared memory to be had

def test_values_travel_with_the_frame_where_no_shared_memory_can_be_had(worker, monkeypatch):
    monkeypatch.setattr(segments, "create", _refuse)
    worker.value("arena_pack:no_shared_memory")
    value = np.ones(40 * MIB, "f4")   # larger than the segments that are there already
    assert np.array_equal(worker.value("arena_pack:plus_one", value), value + 1)
    assert worker.session.traffic["spilled"] == value.nbytes


def _refuse(size, label=""):
    raise OSError(28, "No space left on device")


def test_a_system_without_nameless_memory_uses_named_memory_and_leaves_no_name(monkeypatch):
    names = shared_names()
    monkeypatch.setattr(segments, "nameless", lambda: None)
    with arena_worker() as worker:
        worker.value("arena_pack:no_nameless_memory")
        value = np.ones(40 * MIB, "f4")
        assert np.array_equal(worker.value("arena_pack:plus_one", value), value + 1)
        assert worker.session.traffic["spilled"] == 0
        assert shared_names() == names
        os.kill(worker.process.pid, 9)
    assert shared_names() == names


SMALL_SHM = """
import sys
sys.path[:0] = [{root!r}, {pack!r}]
import numpy as np
from comfy_env.worker.wire import segments
from tests.arena.kit import arena_worker
if {named}:
    segments.nameless = lambda: None
with arena_worker() as worker:
    if {named}:
        worker.value("arena_pack:no_nameless_memory")
    value = np.ones(64 << 20, "f4")
    back = worker.value("arena_pack:plus_one", value)
    assert np.array_equal(back, value + 1)
    print("spilled", worker.session.traffic["spilled"])
"""


@pytest.mark.parametrize("named", [False, True])
def test_a_dev_shm_of_64_mib_never_ends_a_process(named, tmp_path):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    script = tmp_path / "script.py"
    script.write_text(SMALL_SHM.format(root=str(Path(__file__).parents[2]), pack=str(Path(__file__).parent / "pack"), named=named))
    line = f"mount -t tmpfs -o size=64m tmpfs /dev/shm && exec {sys.executable} {script}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", line], capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode == 0, done.stderr
    assert (done.stdout == "spilled 0\n") is not named


# ---------------------------------------------------------------- descriptors

def test_two_thousand_small_tensors_and_a_large_one_cross_with_64_descriptors(worker):
    worker.value("arena_pack:limit", "RLIMIT_NOFILE", 64)
    before, theirs = descriptors(), descriptors(worker.process.pid)
    small = [np.full(100 + i % 7, i, "f4") for i in range(2000)]
    middle = [np.full(20_000, i, "f4") for i in range(500)]
    back = worker.value("arena_pack:echo", [small, middle])
    assert all(map(np.array_equal, back[0], small))
    assert all(map(np.array_equal, back[1], middle))
    large = np.ones(64 * MIB, "f4")
    assert np.array_equal(worker.value("arena_pack:plus_one", large), large + 1)
    assert (descriptors() - before, descriptors(worker.process.pid) - theirs) <= (12, 12)
    for _ in range(300):
        worker.value("arena_pack:echo", middle[:5])
    assert (descriptors() - before, descriptors(worker.process.pid) - theirs) <= (12, 12)


def test_a_worker_without_a_free_descriptor_refuses_once_by_name_and_then_gets_values_with_the_frame(worker):
    worker.value("arena_pack:total", np.ones(COUNT, "f4"))   # numpy is imported
    worker.value("arena_pack:use_up_descriptors")
    value = np.ones(40 * MIB, "f4")
    answer = worker.call("arena_pack:total", value)
    assert "too many files" in answer.text
    assert worker.value("arena_pack:total", value) == value.size
    assert worker.session.traffic["spilled"] == value.nbytes


def test_a_host_without_a_free_descriptor_gets_values_all_the_same(worker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors(), hard))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        assert worker.value("arena_pack:total", np.ones(40 * MIB, "f4")) == 40 * MIB
        with pytest.raises(ComfyEnvError, match="too many files"):
            worker.value("arena_pack:ones", 40 * MIB)
        assert worker.value("arena_pack:ones", 40 * MIB).sum() == 40 * MIB
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---------------------------------------------------------------- address space and memory

def test_a_worker_with_little_address_space_gets_a_value_or_refuses_it_by_name_and_lives(worker):
    worker.value("arena_pack:total", np.ones(COUNT, "f4"))   # numpy is imported
    worker.value("arena_pack:address_space_left", 40 * MIB)
    answer = worker.call("arena_pack:nothing", np.ones(16 * MIB, "f4"))
    assert answer.kind.name == "REPLY" or "cannot be mapped" in answer.text
    assert worker.value("arena_pack:total", np.ones(COUNT, "f4")) == COUNT


def test_what_does_not_fit_the_memory_that_is_left_is_refused_before_any_is_taken(worker, monkeypatch):
    monkeypatch.setattr(headroom, "RESERVE", 1 << 60)
    with pytest.raises(EncodeRefused, match=r"memory.*MemAvailable|memory.*limit"):
        worker.value("arena_pack:total", np.ones(40 * MIB, "f4"))
    monkeypatch.undo()
    assert worker.value("arena_pack:total", np.ones(40 * MIB, "f4")) == 40 * MIB


def test_a_result_that_does_not_fit_is_refused_by_its_worker(worker):
    worker.value("arena_pack:little_memory")
    answer = worker.call("arena_pack:ones", 40 * MIB)
    assert (answer.kind.name, answer.refusal) == ("REFUSED", "encode")
    assert "memory" in answer.text
    assert worker.value("arena_pack:echo", 5) == 5


def test_free_blocks_are_given_up_before_anything_is_refused(worker, monkeypatch):
    worker.value("arena_pack:nothing", *[np.ones(4 * MIB, "f4") for _ in range(2)])
    left = [24 * MIB]

    def take(self, size):
        if size > left[0]:
            left[0] += 32 * MIB   # what the trim gave back
            raise NoRoom("too little")
        left[0] -= size

    monkeypatch.setattr(Headroom, "take", take)
    assert worker.value("arena_pack:total", np.ones(10 * MIB, "f4")) == 10 * MIB


def _system(root: Path, **files: str) -> Headroom:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Headroom(str(root))


@pytest.mark.parametrize(("group", "path", "files"), [
    ("0::/", "", {"max": "1000000000", "current": "800000000", "stat": "inactive_file 0\n"}),
    ("0::/box/inner", "box", {"max": "1000000000", "current": "900000000", "stat": "anon 1\ninactive_file 100000000\n"}),
    ("4:memory:/box", "memory/box", {"limit_in_bytes": "1000000000", "usage_in_bytes": "800000000", "stat": "total_inactive_file 0\n"}),
])
def test_the_memory_left_is_the_least_that_the_system_and_any_group_above_has(tmp_path, group, path, files):
    folder = tmp_path / "sys/fs/cgroup" / path
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)
    room = _system(tmp_path, proc__meminfo="MemTotal: 9 kB\nMemAvailable:    9000000 kB\n", proc__self__cgroup=group + "\n")
    with pytest.raises(NoRoom, match="memory limit of"):
        room.take(200_000_001 - RESERVE)
    room.take(200_000_000 - RESERVE)


def test_a_group_without_a_limit_leaves_what_the_system_has(tmp_path):
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("5\n")
    room = _system(tmp_path, proc__meminfo="MemAvailable: 200000 kB\n", proc__self__cgroup="0::/\n")
    with pytest.raises(NoRoom, match="MemAvailable"):
        room.take(204_800_000)


@pytest.fixture
def group():
    """A control group with a memory limit of 160 MiB, where one can be made."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    path = next((path for _, controllers, path in own if controllers == "memory"), None)
    folder = Path("/sys/fs/cgroup/memory", *(path or "").strip("/").split("/"), f"cenv-{secrets.token_hex(4)}")
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(160 * MIB))
    except OSError as error:
        pytest.skip(f"no control group can be made here ({error})")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_under_a_memory_limit_a_large_result_is_refused_and_the_host_lives(group):
    with arena_worker() as worker:
        worker.value("arena_pack:join_group", str(group))
        answer = worker.call("arena_pack:sparse_memory", 150 * MIB)   # zeros that take no memory before they are sent
        assert (answer.kind.name, answer.refusal) == ("REFUSED", "encode")
        assert "memory limit of" in answer.text
        prove(worker)
