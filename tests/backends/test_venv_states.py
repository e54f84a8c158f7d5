"""The state of an environment is found, not believed: six states, each with its reason and what mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from comfy_env.backends.venv import VenvBackend
from comfy_env.envs import locks, paths, stamps
from comfy_env.errors import BuildFailed
from comfy_env.values import EnvPlan, EnvStatus


@pytest.fixture
def backend(settings):
    return VenvBackend(settings)


@pytest.fixture
def plan():
    return EnvPlan(key="bare")


@pytest.fixture
def built(backend, plan):
    return backend.comfy_env_build(plan, print)


def test_what_was_never_built_is_missing(backend, plan):
    state = backend.comfy_env_inspect(plan, True)
    assert state.status is EnvStatus.MISSING and state.reason and "comfy-env build" in state.fix


@pytest.mark.parametrize("probe", [False, True])
def test_what_was_copied_elsewhere_is_moved(backend, plan, built, settings, tmp_path, probe):
    shutil.copytree(settings.envs_folder, tmp_path / "new", symlinks=True)
    state = VenvBackend(replace(settings, envs_folder=tmp_path / "new")).comfy_env_inspect(plan, probe)
    assert state.status is EnvStatus.MOVED and str(built.folder) in state.reason and state.fix
    assert backend.comfy_env_inspect(plan, probe).status is EnvStatus.READY


def test_what_was_moved_away_is_moved_and_a_build_mends_it(backend, plan, built):
    built.folder.rename(built.folder.with_name("other"))
    assert backend.comfy_env_inspect(plan, False).status is EnvStatus.MOVED
    assert backend.comfy_env_build(plan, print).status is EnvStatus.READY


def test_what_is_reached_by_a_link_is_not_moved(backend, plan, built, settings, tmp_path):
    (tmp_path / "link").symlink_to(settings.envs_folder)
    assert VenvBackend(replace(settings, envs_folder=tmp_path / "link")).comfy_env_inspect(plan, True).status is EnvStatus.READY


def test_an_environment_whose_interpreter_is_gone_is_broken_and_a_build_mends_it(backend, plan, built):
    built.interpreter.unlink()
    for probe in (False, True):
        state = backend.comfy_env_inspect(plan, probe)
        assert state.status is EnvStatus.BROKEN and str(built.interpreter) in state.reason
    assert backend.comfy_env_build(plan, print).status is EnvStatus.READY


def test_an_interpreter_that_does_not_run_is_broken_only_for_a_probe(backend, plan, built):
    built.interpreter.unlink()
    built.interpreter.write_text("#!/bin/sh\necho broken library >&2\nexit 5\n")
    built.interpreter.chmod(0o755)
    assert backend.comfy_env_inspect(plan, False).status is EnvStatus.READY
    state = backend.comfy_env_inspect(plan, True)
    assert state.status is EnvStatus.BROKEN and "status 5" in state.reason and "broken library" in state.reason


def test_a_damaged_stamp_is_broken_and_a_build_mends_it(backend, plan, built):
    (built.folder / stamps.FILE).write_text("{")
    assert backend.comfy_env_inspect(plan, False).status is EnvStatus.BROKEN
    assert backend.comfy_env_build(plan, print).status is EnvStatus.READY


def test_while_somebody_builds_it_a_missing_one_is_building_and_a_ready_one_ready(backend, plan, settings):
    other = EnvPlan(key="other")
    backend.comfy_env_build(plan, print)
    for each, status in ((plan, EnvStatus.READY), (other, EnvStatus.BUILDING)):
        with locks.held(paths.lock_file(each, settings), "build", print):
            state = backend.comfy_env_inspect(each, False)
        assert state.status is status
        assert status is EnvStatus.READY or f"process {os.getpid()}" in state.reason


def test_a_quick_look_takes_milliseconds_and_starts_nothing(backend, plan, built, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    begun = time.perf_counter()
    for _ in range(20):
        assert backend.comfy_env_inspect(plan, False).status is EnvStatus.READY
    assert (time.perf_counter() - begun) / 20 < 0.02


def test_a_plans_own_interpreter_is_used_and_nothing_is_written(backend, tmp_path, settings):
    plan = EnvPlan.existing(sys.executable, "own")
    for state in (backend.comfy_env_inspect(plan, False), backend.comfy_env_inspect(plan, True), backend.comfy_env_build(plan, print)):
        assert state.status is EnvStatus.READY and str(state.interpreter) == sys.executable
    assert backend.comfy_env_plan(plan).install == () and backend.comfy_env_remove(plan).status is EnvStatus.READY
    assert not settings.envs_folder.exists() and not settings.log_folder.exists()


def test_a_plans_own_interpreter_that_is_missing_or_fails_is_told_so(backend, tmp_path):
    gone = EnvPlan.existing(tmp_path / "nowhere", "gone")
    assert backend.comfy_env_inspect(gone, True).status is EnvStatus.MISSING
    (tmp_path / "bad").write_text("#!/bin/sh\nexit 4\n")
    (tmp_path / "bad").chmod(0o755)
    bad = EnvPlan.existing(tmp_path / "bad", "bad")
    assert backend.comfy_env_inspect(bad, True).status is EnvStatus.BROKEN
    for plan in (gone, bad):
        with pytest.raises(BuildFailed, match="used as it is"):
            backend.comfy_env_build(plan, print)
