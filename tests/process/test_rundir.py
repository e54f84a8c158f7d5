"""Run folders, locks and records: private, locked for life, whole or not there, gone after a close."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from comfy_env.errors import ComfyEnvError
from comfy_env.process import locks, records, rundir, sweep
from comfy_env.process.rundir import SOURCE, HostRun

ASK = """
import sys
from pathlib import Path
from comfy_env.process import locks
print(locks.query(Path(sys.argv[1])).pid)
"""


def holder_seen_by_another_process(path: Path) -> str:
    """Return what another process is told about a lock."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, env=environ, check=True)
    return done.stdout.strip()


def lock_of(host: HostRun) -> Path:
    return host.folder.with_name(f"{host.folder.name}.lock")


def test_a_host_locks_its_file_for_life_and_other_processes_see_by_whom(host):
    assert holder_seen_by_another_process(lock_of(host)) == str(os.getpid())


def test_a_forked_child_of_the_host_neither_drops_the_lock_nor_removes_the_folder(host):
    child = os.fork()
    if not child:
        host.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert host.folder.is_dir() and holder_seen_by_another_process(lock_of(host)) == str(os.getpid())


def test_the_worker_package_is_copied_whole_and_without_caches(host):
    copied = {str(path.relative_to(host.worker_folder)) for path in host.worker_folder.rglob("*") if path.is_file()}
    wanted = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert copied == wanted and "wire/kinds.py" in copied


def test_a_changed_source_does_not_reach_a_running_host_and_a_removed_copy_comes_back(runtime, tmp_path, monkeypatch):
    source = tmp_path / "worker"
    source.mkdir()
    (source / "loop.py").write_text("first")
    monkeypatch.setattr(rundir, "SOURCE", source)
    host = HostRun.open(runtime)
    (source / "loop.py").write_text("second")
    (host.worker_folder / "loop.py").unlink()
    assert (host.worker_folder / "loop.py").read_text() == "first"
    host.close()


def test_closing_removes_everything_of_the_host_and_is_idempotent(runtime):
    host, other = HostRun.open(runtime), HostRun.open(runtime)
    host.new_worker("a", 1)
    host.close()
    host.close()
    assert sorted(os.listdir(runtime)) == sorted([other.folder.name, lock_of(other).name])
    other.close()
    assert os.listdir(runtime) == []


def test_workers_have_folders_and_nonces_of_their_own_whatever_their_names(host):
    first, second = host.new_worker("a/../ü" * 40, 1), host.new_worker("a/../ü" * 40, 1)
    assert first.folder != second.folder and first.nonce != second.nonce
    assert first.folder.parent == host.folder and first.record_path.parent == first.folder
    first.close()
    assert not first.folder.exists() and second.folder.exists()


@pytest.mark.row("X11")
def test_folders_are_private_even_under_an_odd_umask(runtime):
    before = os.umask(0o777)
    try:
        host = HostRun.open(runtime / "deep" / "er")
        worker = host.new_worker("a", 1)
    finally:
        os.umask(before)
    folders = (host.folder.parent, host.folder, host.worker_folder, worker.folder)
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    assert lock_of(host).stat().st_mode & 0o777 == (host.worker_folder / "__init__.py").stat().st_mode & 0o777 == 0o600
    host.close()


def test_a_runtime_folder_open_to_others_is_closed_to_them(runtime):
    runtime.chmod(0o777)
    HostRun.open(runtime).close()
    assert runtime.stat().st_mode & 0o777 == 0o700


@pytest.mark.row("X10")
@pytest.mark.parametrize("name", ["x" * 200, "with space", "äöü-日本"])
def test_long_spaced_and_foreign_names_work(runtime, name):
    host = HostRun.open(runtime / name)
    assert host.new_worker("a", 1).folder.is_dir()
    host.close()


@pytest.mark.row("X10")
def test_a_runtime_folder_that_cannot_be_used_is_named_with_the_setting_that_mends_it(runtime):
    (runtime / "file").write_text("")
    for bad in (runtime / "file", runtime / "file" / "below"):
        with pytest.raises(ComfyEnvError, match="COMFY_ENV_RUNTIME") as caught:
            HostRun.open(bad)
        assert str(bad) in str(caught.value)


def test_a_link_to_somewhere_else_is_not_used_as_runtime_folder(runtime, tmp_path):
    (runtime / "link").symlink_to(tmp_path)
    with pytest.raises(ComfyEnvError, match="not a folder of this user"):
        HostRun.open(runtime / "link")


def test_a_host_that_cannot_be_filled_leaves_nothing(runtime, monkeypatch):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(HostRun, "_fill", full)
    with pytest.raises(ComfyEnvError, match="No space"):
        HostRun.open(runtime)
    assert os.listdir(runtime) == []


def test_opening_a_path_again_that_this_process_locked_is_refused_because_it_would_drop_the_lock(host):
    for ask in (locks.query, locks.take):
        with pytest.raises(ComfyEnvError, match="locked by this process"):
            ask(lock_of(host))
    assert holder_seen_by_another_process(lock_of(host)) == str(os.getpid())


def test_a_pool_that_sweeps_while_another_of_its_process_opens_leaves_that_one_alone(runtime, monkeypatch):
    """A kernel lock does not stand between threads of one process: the file was seen before it was ours, and is locked afterwards."""
    HostRun.open(runtime).close()
    seen, opened, sweeps = threading.Event(), threading.Event(), []
    real_lock, real_open = locks.HeldLock, locks.open_regular

    def slow_lock(path, fd):
        if not sweeps:
            sweeps.append(threading.Thread(target=sweep.sweep, args=(runtime,)))
            sweeps[0].start()
            seen.wait(0.5)   # in vain, where who holds a path is looked at in the same step
        return real_lock(path, fd)

    def slow_open(path, flags):
        fd = real_open(path, flags)
        if threading.current_thread() in sweeps and not opened.is_set():
            seen.set()
            opened.wait(20)
        return fd

    monkeypatch.setattr(locks, "HeldLock", slow_lock)
    monkeypatch.setattr(locks, "open_regular", slow_open)
    run = HostRun.open(runtime)
    opened.set()
    sweeps[0].join(20)
    assert _held_from_outside(run) and (run.folder / "worker" / "__main__.py").exists()
    run.close()


def _held_from_outside(run):
    """Tell whether another process finds a host's lock held."""
    child = os.fork()
    if child == 0:
        free = 2
        with contextlib.suppress(OSError):
            fd = os.open(run._lock.path, os.O_RDWR)
            free = 0
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = 1
        os._exit(free)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_host_of_this_process_that_opens_just_as_a_sweep_comes_by_is_left_alone(runtime, monkeypatch):
    host = HostRun.open(runtime)
    monkeypatch.setattr(locks, "ours", lambda path, real=locks.ours: sys._getframe(1).f_code.co_name == "_must_not_be_ours" and real(path))
    for dry_run in (True, False):
        report = sweep.sweep(runtime, dry_run)
        assert (report.killed, report.removed) == ([], [])
    monkeypatch.undo()
    assert _held_from_outside(host)
    host.close()


def test_a_lock_somebody_else_holds_cannot_be_taken_and_a_free_one_can(runtime):
    path = runtime / "lock"
    locks.take(path, create=True).release()
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-I", "-S", "-c", hold, str(path)], stdout=subprocess.PIPE)
    other.stdout.readline()
    assert locks.take(path) is None and locks.query(path).pid == other.pid
    other.kill()
    other.wait()
    other.stdout.close()
    assert locks.query(path).free
    taken = locks.take(path)
    assert locks.ours(path)
    taken.release()
    assert not locks.ours(path)


def record() -> records.Record:
    return records.expected(nonce="n" * 32, host_nonce="h" * 32, env="pack-ä", generation=4, exe="/e/python")


def test_a_record_is_read_as_it_was_written_and_gains_its_numbers_in_the_same_file(tmp_path):
    path = records.write(tmp_path, record())
    inode = path.stat().st_ino
    assert records.read(path) == record()
    records.add_process(tmp_path, pid=7, pgid=7, started=99)
    found = records.read(path)
    assert (found.pid, found.pgid, found.started, found.env) == (7, 7, 99, "pack-ä")
    assert path.stat().st_ino == inode and os.listdir(tmp_path) == [records.NAME]


def test_a_half_written_second_line_counts_as_not_written(tmp_path):
    path = records.write(tmp_path, record())
    with path.open("a") as file:
        file.write('{"pid": 12')
    assert records.read(path) == record()


@pytest.mark.row("X8")
@pytest.mark.parametrize(("content", "why"), [
    (b"", "not JSON"), (b"\xff\0\n", "not JSON"), (b"[1]\n", "not an object"), (b"{}\n", "schema"), (b'{"schema": 1}\n', "lacks a field"),
    (b'{"schema": 1, "pid": "7"}\n', "pid"), (b'{"schema": 1, "generation": true}\n', "generation"),
    (b'{"schema": "x"}\n', "schema"), (b"[" * 100_000, "not JSON"),
])
def test_a_damaged_record_is_unreadable_and_says_why(tmp_path, content, why):
    path = tmp_path / records.NAME
    path.write_bytes(content)
    with pytest.raises(records.Unreadable, match=why) as caught:
        records.read(path)
    assert not isinstance(caught.value, records.LaterSchema)


def test_a_record_of_a_later_schema_is_told_apart_from_a_damaged_one(tmp_path):
    path = tmp_path / records.NAME
    path.write_bytes(b'{"schema": 2, "anything": "else"}\n')
    with pytest.raises(records.LaterSchema):
        records.read(path)


def test_a_run_folder_goes_although_the_system_refuses_once(host, monkeypatch):
    run = host.new_worker("a", 1)
    (run.folder / "inner").mkdir()
    refused, real = [], shutil.rmtree

    def once(path, **more):
        if not refused:
            refused.append(path)
            raise OSError(24, "Too many open files")
        real(path, **more)

    monkeypatch.setattr(rundir.shutil, "rmtree", once)
    run.close()
    assert refused == [run.folder] and not run.folder.exists()
