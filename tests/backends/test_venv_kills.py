"""A build that is killed, cancelled or raced leaves an environment that works (design: built beside, swapped by one rename)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from comfy_env.backends import uv
from comfy_env.backends.venv import VenvBackend
from comfy_env.envs import locks, paths
from comfy_env.errors import BuildCancelled
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan, EnvStatus

BUILD = """
import sys
from pathlib import Path
from comfy_env.backends.venv import VenvBackend
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan
root, uv = Path(sys.argv[1]), sys.argv[2]
backend = VenvBackend(Settings(envs_folder=root / "envs", log_folder=root / "logs", uv=uv))
backend.comfy_env_build(EnvPlan(key="demo", allow_source_builds=True), lambda step: None)
"""


@pytest.fixture
def slow_uv(tmp_path):
    """A uv that makes the environment, says so, and then hangs with a child until it is ended."""
    found = uv.find(Settings())
    if found is None:
        pytest.fail("these tests need uv: install the extra 'uv'")
    program = tmp_path / "slow-uv"
    note = shlex.quote(str(tmp_path / "hanging"))
    program.write_text(
        f'#!/bin/sh\n{shlex.quote(str(found[0]))} "$@" || exit\n[ "$1" = venv ] || exit 0\n'
        f"sleep 600 &\necho $$ $! > {note}.new; mv {note}.new {note}\nwait\n"
    )
    program.chmod(0o755)
    return program


def hanging(tmp_path):
    note = tmp_path / "hanging"
    return [int(pid) for pid in note.read_text().split()] if note.exists() else []


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("before", ["nothing", "an old one"])
def test_a_killed_build_leaves_what_was_there_and_the_next_one_tidies_up(settings, slow_uv, tmp_path, eventually, before):
    old, plan, backend = EnvPlan(key="demo"), EnvPlan(key="demo", allow_source_builds=True), VenvBackend(settings)
    if before == "an old one":
        backend.comfy_env_build(old, print)
    with subprocess.Popen([sys.executable, "-c", BUILD, tmp_path, slow_uv]) as host:
        tool, child = eventually(lambda: hanging(tmp_path), 30)
        host.send_signal(signal.SIGKILL)
    eventually(lambda: gone(tool) and gone(child), what="the installer went on after its host died")
    wanted = EnvStatus.READY if before == "an old one" else EnvStatus.MISSING
    assert backend.comfy_env_inspect(old, True).status is wanted
    folder = paths.env_folder(plan, settings)
    assert len([entry for entry in folder.iterdir() if entry.is_dir()]) == (2 if before == "an old one" else 1)
    state = backend.comfy_env_build(plan, print)
    assert state.status is EnvStatus.READY
    assert [entry for entry in folder.iterdir() if entry.is_dir()] == [state.interpreter.parents[1]]


def test_cancelling_ends_the_installer_and_its_children(settings, slow_uv, tmp_path, eventually):
    backend = VenvBackend(Settings(envs_folder=settings.envs_folder, log_folder=settings.log_folder, uv=str(slow_uv)))

    def cancel(step):
        if hanging(tmp_path):
            raise BuildCancelled("enough", env=step.key)

    with pytest.raises(BuildCancelled):
        backend.comfy_env_build(EnvPlan(key="demo"), cancel)
    assert all(gone(pid) for pid in hanging(tmp_path)) or eventually(lambda: all(gone(pid) for pid in hanging(tmp_path)))
    assert not paths.env_folder(EnvPlan(key="demo"), settings).exists()


def test_two_builders_of_one_environment_take_turns_and_build_once(settings):
    plan, backend, steps = EnvPlan(key="demo"), VenvBackend(settings), {0: [], 1: []}
    states = []

    def build(number):
        states.append(backend.comfy_env_build(plan, lambda step: steps[number].append(step.text)))

    threads = [threading.Thread(target=build, args=(number,)) for number in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(states) == 2 and states[0].interpreter == states[1].interpreter
    assert sum("it is built already" in told for told in steps.values()) == 1


def test_one_who_waits_for_another_builder_is_told_and_may_cancel(settings):
    plan, heard = EnvPlan(key="demo"), []

    def cancel(step):
        heard.append(step.text)
        raise BuildCancelled("enough", env=step.key)

    with locks.held(paths.lock_file(plan, settings), "build", print), pytest.raises(BuildCancelled):
        VenvBackend(settings).comfy_env_build(plan, cancel)
    assert f"process {os.getpid()}" in heard[0]
