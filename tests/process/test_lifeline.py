"""The host dies, however it dies: the worker's whole group is gone within a second, whatever the worker is doing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from comfy_env.process import lifeline, procs
from comfy_env.process.pins import Pin
from tests.nights import night_in
from tests.process.kit import PlainEndpoint, carriers, running

PROGRAM = Path(__file__).with_name("host_program.py")
SECOND = 1.0
pytestmark = pytest.mark.skipif(not procs.LINUX, reason="the kernel's lifeline is Linux's")


@pytest.fixture
def host_of(runtime: Path) -> Iterator[Callable[..., tuple[subprocess.Popen, dict]]]:
    """`host_of(mode, busy, *more)` starts a host with one worker and returns it with the numbers it told."""
    hosts: list[tuple[subprocess.Popen, dict]] = []

    def begin(*words: str) -> tuple[subprocess.Popen, dict]:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        host = subprocess.Popen([sys.executable, str(PROGRAM), str(runtime), *words], stdout=subprocess.PIPE, text=True, env=environ)
        told = json.loads(host.stdout.readline())
        hosts.append((host, told))
        return host, told

    yield begin
    for host, told in hosts:
        host.kill()
        host.wait()
        host.stdout.close()
        for pid in {told["forked"], *carriers(told["nonce"])} - {0}:
            with Pin(pid) as pin:
                pin.send(signal.SIGKILL)


def gone_after(told: dict) -> float:
    """Return the seconds until everybody of a worker is gone; more than a second is returned as infinity."""
    began = time.monotonic()
    family = [told[name] for name in ("leader", "worker", "grandchild")]
    while time.monotonic() - began < SECOND:
        if not any(map(running, family)) and not carriers(told["nonce"]):
            return time.monotonic() - began
        time.sleep(0.001)
    return float("inf")


def test_a_host_that_slept_during_its_probe_still_learns_that_lifelines_work(monkeypatch):
    monkeypatch.setattr(lifeline, "readable", night_in(monkeypatch, "process.lifeline").in_first(lifeline.readable))
    assert lifeline._probe()


def test_this_kernel_is_probed_once_and_ends_a_group():
    assert lifeline.works() is True


@pytest.mark.parametrize("mode", ["kernel", "shell"])
@pytest.mark.parametrize("busy", [
    pytest.param("idle", marks=pytest.mark.row("F1")), pytest.param("gil", marks=pytest.mark.row("F2")), "multiply",
    pytest.param("stopped", marks=pytest.mark.row("F10")),
])
def test_worker_and_grandchild_are_gone_within_a_second_of_the_hosts_sigkill(host_of, mode, busy):
    host, told = host_of(mode, busy)
    assert running(told["worker"]) and running(told["grandchild"])
    host.kill()
    assert gone_after(told) < SECOND


@pytest.mark.row("F2")
def test_a_watcher_thread_alone_fails_while_native_code_holds_the_gil(host_of):
    host, told = host_of("watcher", "gil")
    host.kill()
    host.wait()
    assert gone_after(told) == float("inf")
    assert running(told["worker"]) and running(told["grandchild"])


def test_the_same_watcher_thread_works_while_the_gil_is_free(host_of):
    host, told = host_of("watcher", "idle")
    host.kill()
    assert gone_after(told) < SECOND


@pytest.mark.row("F7")
def test_the_group_goes_through_a_wrapper_too(host_of):
    host, told = host_of("kernel", "gil", "wrapped")
    assert told["leader"] != told["worker"]
    host.kill()
    assert gone_after(told) < SECOND


@pytest.mark.row("F5")
def test_a_forked_child_of_the_host_does_not_keep_the_worker_alive(host_of):
    host, told = host_of("kernel", "gil", "forking")
    host.kill()
    assert gone_after(told) < SECOND
    assert running(told["forked"])


@pytest.mark.row("F4")
def test_a_host_that_replaces_its_program_loses_its_worker_and_collects_it_by_number(host_of):
    host, told = host_of("kernel", "gil", "replaced")
    again = json.loads(host.stdout.readline())
    assert again == {"killed": [], "reaped": [told["leader"]], "zombie": False, "left": []}
    assert not carriers(told["nonce"])


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGABRT])
def test_it_does_not_matter_how_the_host_dies(host_of, sent):
    host, told = host_of("kernel", "gil")
    host.send_signal(sent)
    assert gone_after(told) < SECOND


@pytest.mark.row("F3")
def test_a_host_killed_at_any_moment_after_the_start_leaves_nobody(host_of):
    chance = random.Random(20)
    for _ in range(10):
        host, told = host_of("kernel", "gil", "at once")
        time.sleep(chance.uniform(0, 0.06))  # the moment itself is what is tried, nothing is waited for
        host.kill()
        host.wait()
        limit = time.monotonic() + SECOND
        while carriers(told["nonce"]) and time.monotonic() < limit:
            time.sleep(0.005)
        assert not carriers(told["nonce"])


def test_a_closed_write_end_whose_number_was_reused_is_not_closed_in_a_child():
    read, write = os.pipe()
    lifeline.keep_from_forks(write)
    os.close(write)
    reused = os.open("/dev/null", os.O_RDONLY)
    os.dup2(reused, write)
    child = os.fork()
    if not child:
        os._exit(0 if os.path.exists(f"/proc/self/fd/{write}") else 1)
    _, status = os.waitpid(child, 0)
    for fd in {read, write, reused}:
        os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0


def test_workers_born_at_once_do_not_trip_over_each_others_closed_write_ends(monkeypatch):
    """Each birth forgets the ends that were closed meanwhile; two of them met at the same one, and a spawn failed with a KeyError."""
    real = lifeline._identity

    def slow(fd: int) -> tuple[int, int] | None:
        found = real(fd)
        if found != lifeline._ENDS.get(fd):
            time.sleep(0.001)   # long enough for another birth to see the same closed end
        return found

    def born(count: int) -> None:
        for _ in range(count):
            read, write = os.pipe()
            lifeline.keep_from_forks(write)
            os.close(read)
            os.close(write)

    monkeypatch.setattr(lifeline, "_identity", slow)
    with ThreadPoolExecutor(6) as births:
        list(births.map(born, [30] * 6))


@pytest.mark.parametrize("group", [0, 1, -1])
def test_a_lifeline_is_never_armed_on_everybody(group):
    read, write = os.pipe()
    with pytest.raises(ProcessLookupError):
        lifeline.arm(read, group)
    os.close(read)
    os.close(write)


def test_the_lifeline_outlives_the_hosts_copy_of_its_read_end(start):
    """The descriptor is closed in the host, the arming stays with the open file the worker holds."""
    endpoint = PlainEndpoint()
    child = subprocess.Popen(["/bin/sleep", "60"], pass_fds=endpoint.child_fds, start_new_session=True)
    lifeline.arm(endpoint.lifeline_read, child.pid)
    endpoint.child_started()
    endpoint.close()
    assert child.wait(5) == -signal.SIGKILL
