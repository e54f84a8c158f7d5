"""The sweep at start: what a dead host left is ended and removed; on any doubt nothing is touched."""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from comfy_env.process import locks, procs, records, sweep, tree
from comfy_env.process.rundir import HostRun
from tests.nights import night_in
from tests.process.kit import PlainEndpoint, launch_of, python, running

HOLD = """
import fcntl, os, sys, time
tell = lambda: os.write(1, b'%d\\n' % os.getpid())  # whole lines, whoever writes at the same time
lock = open(sys.argv[1], 'r+')
fcntl.lockf(lock, fcntl.LOCK_EX)
if len(sys.argv) > 2 and not os.fork():
    os.setsid()
    tell()
    time.sleep(60)
if len(sys.argv) > 2 and not os.fork():
    tell()
    os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'], {})
tell()
time.sleep(60)
"""


class DeadHost:
    """What a host that died left in a runtime folder; processes that play its workers."""

    def __init__(self, runtime: Path) -> None:
        self.nonce = secrets.token_hex(16)
        self.folder = runtime / f"host-{self.nonce}"
        self.lock = runtime / f"host-{self.nonce}.lock"
        self.folder.mkdir()
        self.lock.touch(0o600)
        self.players: list[subprocess.Popen] = []

    def worker(self, **changes: object) -> tuple[Path, records.Record]:
        """Plant a run folder with a record."""
        nonce = secrets.token_hex(16)
        folder = self.folder / f"w-a-1-{nonce[:8]}"
        folder.mkdir()
        record = records.expected(nonce=nonce, host_nonce=self.nonce, env="a", generation=1, exe="/e/python")
        record = replace(record, **changes)
        (folder / records.NAME).write_text(json.dumps(asdict(record)) + "\n")
        return folder, record

    def play(self, argv: tuple[str, ...], lines: int, record: records.Record | None = None, own: bool = True) -> list[int]:
        """Start a process that carries a record's nonces and return the numbers it and its family tell."""
        marks = {"COMFY_ENV_NONCE": record.nonce, "COMFY_ENV_HOST_NONCE": record.host_nonce} if record else {}
        player = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=own, env={**os.environ, **marks})
        self.players.append(player)
        return [int(player.stdout.readline()) for _ in range(lines)]

    def started(self, folder: Path, pid: int) -> None:
        row = procs.row(pid)
        records.add_process(folder, pid=pid, pgid=row.group, started=row.started)

    def close(self) -> None:
        for player in self.players:
            player.kill()
            player.wait()
            player.stdout.close()


@pytest.fixture
def dead(runtime: Path) -> Iterator[DeadHost]:
    host = DeadHost(runtime)
    yield host
    host.close()


@pytest.fixture
def bystander(dead) -> Callable[[], subprocess.Popen]:
    """A process that has the host's paths in its arguments and none of its marks."""
    argv = python("import time; time.sleep(60)", dead.folder, dead.nonce)
    player = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    dead.players.append(player)
    return player


def holder(folder: Path, *more: str) -> tuple[str, ...]:
    return python(HOLD, folder / records.NAME, *more)


@pytest.mark.row("X8", "X9")
def test_a_worker_that_outlived_its_host_goes_with_its_group_and_with_those_that_left_it(runtime, dead, bystander):
    folder, record = dead.worker()
    family = dead.play(holder(folder, "family"), 3, record)
    dead.started(folder, dead.players[-1].pid)
    report = sweep.sweep(runtime)
    assert not any(running(pid) for pid in family)
    assert dead.players[-1].pid in report.killed and not report.skipped
    assert os.listdir(runtime) == [] and bystander.poll() is None


def test_a_dry_run_says_the_same_and_touches_nothing(runtime, dead):
    folder, record = dead.worker()
    (pid,) = dead.play(holder(folder), 1, record)
    report = sweep.sweep(runtime, dry_run=True)
    assert report.killed == [pid] and report.removed == [folder, dead.folder, dead.lock]
    assert running(pid) and folder.is_dir() and dead.lock.exists()


def test_a_worker_whose_numbers_were_never_written_goes_but_not_its_group(runtime, dead):
    folder, record = dead.worker()
    (pid,) = dead.play(holder(folder), 1, record, own=False)
    assert procs.row(pid).group == os.getpgrp()
    report = sweep.sweep(runtime)
    # it is in our own group, so it is not ours to end, whatever it carries
    assert running(pid) and report.killed == [] and "not ours to end" in report.skipped[0][1]
    assert folder.is_dir() and dead.lock.exists()


def test_a_worker_in_a_group_the_record_does_not_name_goes_alone(runtime, dead):
    folder, record = dead.worker()
    family = dead.play(holder(folder, "family"), 3, record)
    report = sweep.sweep(runtime)
    naked = [pid for pid in family if running(pid)]
    assert len(naked) == 1 and len(report.killed) == 2  # the one without marks is in a group nobody recorded
    os.kill(naked[0], 9)


def test_descendants_of_a_worker_that_is_gone_are_found_by_their_nonces(runtime, dead):
    folder, record = dead.worker()
    (pid,) = dead.play(python("import os, time; print(os.getpid(), flush=True); time.sleep(60)"), 1, record)
    report = sweep.sweep(runtime)
    assert report.killed == [pid] and not running(pid) and os.listdir(runtime) == []


@pytest.mark.row("X9")
def test_descendants_are_ended_although_the_host_slept_before_it_found_them(runtime, dead, monkeypatch):
    night, find = night_in(monkeypatch, "process.sweep"), sweep._carriers
    monkeypatch.setattr(sweep, "_carriers", lambda record: (None if night.slept else night.pass_by()) or find(record))
    _, record = dead.worker()
    (pid,) = dead.play(python("import os, time; print(os.getpid(), flush=True); time.sleep(60)"), 1, record)
    report = sweep.sweep(runtime)
    assert not running(pid) and report.killed == [pid] and not report.skipped


def test_a_descendant_with_the_workers_nonce_but_another_hosts_lives(runtime, dead):
    folder, record = dead.worker()
    foreign = replace(record, host_nonce="e" * 32)
    (pid,) = dead.play(python("import os, time; print(os.getpid(), flush=True); time.sleep(60)"), 1, foreign)
    assert sweep.sweep(runtime).killed == [] and running(pid)


@pytest.mark.row("X8")
@pytest.mark.parametrize("pid", [0, 1, -1, "own", "bystander"])
def test_the_recorded_number_alone_ends_nobody(runtime, dead, bystander, pid):
    known = {"own": os.getpid(), "bystander": bystander.pid}
    number = known.get(pid, pid)
    dead.worker(pid=number, pgid=number, started=procs.row(bystander.pid).started)
    report = sweep.sweep(runtime)
    assert report.killed == report.reaped == [] and bystander.poll() is None
    assert os.listdir(runtime) == []


@pytest.mark.row("X8")
@pytest.mark.parametrize("changes", [{"boot": "another boot"}], ids=["another boot"])
def test_what_an_earlier_boot_left_is_litter_and_nobody_is_ended(runtime, dead, changes):
    folder, record = dead.worker(**changes)
    (pid,) = dead.play(holder(folder), 1, record)
    report = sweep.sweep(runtime)
    assert running(pid) and report.killed == [] and os.listdir(runtime) == []


@pytest.mark.row("X8")
@pytest.mark.parametrize(("changes", "why"), [
    ({"namespace": 1}, "namespace"), ({"schema": 99}, "schema"), ({"host_nonce": "e" * 32}, "another host"),
])
def test_records_of_another_namespace_schema_or_host_are_left_alone(runtime, dead, changes, why):
    folder, record = dead.worker(**changes)
    (pid,) = dead.play(holder(folder), 1, record)
    report = sweep.sweep(runtime)
    assert running(pid) and report.killed == report.removed == []
    assert [path for path, _ in report.skipped] == [folder] and why in report.skipped[0][1]
    assert folder.is_dir() and dead.lock.exists()


@pytest.mark.row("X8")
def test_a_lock_holder_without_the_nonces_lives(runtime, dead):
    folder, _ = dead.worker()
    (pid,) = dead.play(holder(folder), 1)
    report = sweep.sweep(runtime)
    assert running(pid) and "does not carry" in report.skipped[0][1] and folder.is_dir()


def test_a_lock_holder_that_still_carries_the_zygote_its_record_names_is_ended(runtime, dead):
    zygote = secrets.token_hex(16)
    folder, record = dead.worker(zygote=zygote)
    [child] = dead.play(holder(folder), 1, replace(record, nonce=zygote))
    dead.started(folder, child)
    report = sweep.sweep(runtime)
    assert report.killed == [child] and not running(child) and not folder.exists()


def test_a_lock_holder_that_carries_a_zygote_its_record_does_not_name_lives(runtime, dead):
    folder, record = dead.worker(zygote=secrets.token_hex(16))
    [child] = dead.play(holder(folder), 1, replace(record, nonce=secrets.token_hex(16)))
    dead.started(folder, child)
    assert sweep.sweep(runtime).killed == [] and running(child)


@pytest.mark.parametrize("nights", [0, 1], ids=["awake", "over a night"])
def test_a_worker_that_is_just_ending_still_holds_its_lock_and_is_waited_for(runtime, dead, monkeypatch, nights):
    night = night_in(monkeypatch, "process.sweep")
    folder, _ = dead.worker()
    dead.play(holder(folder), 1)   # without the nonces, as a process that is ending has no environment any more
    player, looks = dead.players[-1], []

    def ending(pid: int) -> bool:
        looks.append(pid)
        if len(looks) == nights:
            night.pass_by()
        if len(looks) == 3:
            player.kill()
        return pid == player.pid

    monkeypatch.setattr(procs, "ending", ending)
    report = sweep.sweep(runtime)
    assert len(looks) >= 3 and os.listdir(runtime) == [] and not report.skipped and not report.killed


@pytest.mark.row("X8")
def test_a_damaged_record_is_litter_when_its_lock_is_free_and_left_alone_when_it_is_held(runtime, dead):
    free, _ = dead.worker()
    held, record = dead.worker()
    for folder in (free, held):
        (folder / records.NAME).write_text("{not json")
    (pid,) = dead.play(holder(held), 1, record)
    report = sweep.sweep(runtime)
    assert running(pid) and report.removed == [free] and [path for path, _ in report.skipped] == [held]


@pytest.mark.row("X8")
def test_a_record_that_is_a_link_is_not_followed(runtime, dead, tmp_path):
    folder, record = dead.worker()
    (folder / records.NAME).rename(tmp_path / "elsewhere")
    (folder / records.NAME).symlink_to(tmp_path / "elsewhere")
    report = sweep.sweep(runtime)
    assert "cannot be opened" in report.skipped[0][1] and (tmp_path / "elsewhere").exists()


OTHERS = {"pipe": os.mkfifo, "folder": os.mkdir, "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600)}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("where", ["record", "journal", "host lock"])
def test_what_is_no_regular_file_is_never_opened_and_the_sweep_goes_on(runtime, dead, where, make):
    folder, _ = dead.worker()
    path = {"record": folder / records.NAME, "journal": dead.folder / "journal.json", "host lock": dead.lock}[where]
    path.unlink(missing_ok=True)
    make(path)
    other = DeadHost(runtime)
    other.worker()
    report = sweep.sweep(runtime)
    assert not other.folder.exists()
    assert dead.folder.exists() is (where != "journal")
    assert where != "record" or "no regular file" in dict(report.skipped)[folder]


def test_folders_of_workers_that_never_started_and_locks_that_never_got_a_name_are_litter(runtime, dead):
    (dead.folder / "w-a-1-00000000").mkdir()
    unnamed = runtime / f"new-{'a' * 32}.lock"
    unnamed.touch()
    sweep.sweep(runtime)
    assert os.listdir(runtime) == []


def test_a_living_host_of_another_process_is_left_alone(runtime, dead):
    (dead.folder / "w-a-1-00000000").mkdir()
    (pid,) = dead.play(python(HOLD, dead.lock), 1)
    report = sweep.sweep(runtime)
    assert report == sweep.SweepReport() and dead.folder.is_dir() and running(pid)


def test_our_own_living_hosts_are_left_alone_and_keep_their_locks(runtime, host, start):
    process = start("import time; time.sleep(60)")
    assert sweep.sweep(runtime) == sweep.SweepReport()
    assert process.exit_status() is None and locks.ours(host.folder.with_name(f"{host.folder.name}.lock"))
    other = HostRun.open(runtime)
    assert sweep.sweep(runtime, dry_run=True) == sweep.SweepReport()
    other.close()


def test_a_host_folder_without_a_lock_is_reported_and_left_alone(runtime, dead):
    dead.lock.unlink()
    report = sweep.sweep(runtime)
    assert [path for path, _ in report.skipped] == [dead.folder] and dead.folder.is_dir()


def test_strange_files_in_the_runtime_folder_are_not_touched(runtime):
    for name in ("host-x.lock", "notes.txt", f"host-{'g' * 32}.lock"):
        (runtime / name).write_text("")
    (runtime / "host-y").mkdir()
    before = sorted(os.listdir(runtime))
    assert sweep.sweep(runtime) == sweep.SweepReport() and sorted(os.listdir(runtime)) == before


def test_a_runtime_folder_that_is_not_there_has_nothing_to_sweep(runtime):
    assert sweep.sweep(runtime / "nowhere") == sweep.SweepReport()


def test_a_linked_runtime_folder_is_not_believed(runtime, dead):
    (runtime / "link").symlink_to(runtime)
    assert sweep.sweep(runtime / "link") == sweep.SweepReport() and dead.lock.exists()


def test_two_sweeps_at_once_share_the_work_without_an_error(runtime):
    for _ in range(30):
        DeadHost(runtime).worker()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "import sys; from pathlib import Path; from comfy_env.process.sweep import sweep; sweep(Path(sys.argv[1]))"
    both = [subprocess.Popen([sys.executable, "-c", code, str(runtime)], env=environ, stderr=subprocess.PIPE) for _ in range(2)]
    assert [one.communicate(timeout=60)[1] for one in both] == [b"", b""]
    assert os.listdir(runtime) == []


def test_a_real_worker_whose_host_dropped_its_lock_is_ended_by_the_next_sweep(runtime, eventually):
    """The whole way: started by `launch`, locked by the worker, judged by the record `launch` wrote."""
    from comfy_env.process import launch

    host = HostRun.open(runtime)
    endpoint = PlainEndpoint()
    wanted = launch_of(host, (), endpoint)
    process = launch.start(replace(wanted, argv=holder(wanted.run_folder)))
    record = wanted.run_folder / records.NAME
    eventually(lambda: not locks.query(record).free)
    host._lock.release()  # what the kernel does at a host's death
    report = sweep.sweep(runtime)
    assert report.killed == [process.pid] and report.reaped == [process.pid]
    assert tree.end(process, nonce=wanted.nonce).pids == ()
    host.close()
    process.close()
    endpoint.close()
    assert os.listdir(runtime) == []
