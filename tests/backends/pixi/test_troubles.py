"""What can go wrong around a conda environment, and what its user is told and can do then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env import WorkerPool
from comfy_env.backends.pixi import PixiBackend, activation, kept, prefixes
from comfy_env.envs import paths
from comfy_env.errors import BuildFailed, SpawnFailed, Unsatisfiable
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvStatus

from . import channel as channels

pytestmark = pytest.mark.real


def build_of(state):
    return state.interpreter.parents[4]


def rebuilt(backend, plan, report=print):
    """Delete an environment behind the backend's back and build it again."""
    shutil.rmtree(paths.env_folder(plan, backend.settings), ignore_errors=True)
    return backend.comfy_env_build(plan, report)


@pytest.fixture(params=["rattled", "faked"])
def maker(request):
    """Each way of making an environment: py-rattler, and fake_pixi, which delegates to it."""
    return request.getfixturevalue(request.param)


# ---------------------------------------------------------------- a dry run

def test_a_dry_run_that_fails_names_the_cause_and_no_log_that_is_gone(rattled, plan):
    with pytest.raises(Unsatisfiable, match="solving with py-rattler: .*No candidates were found for greeting >=9") as caught:
        rattled.comfy_env_plan(plan("dry", "greeting>=9"))
    assert caught.value.hint == "ask for other versions, or name a channel that has them"
    assert "\n" not in caught.value.message and "exited" not in caught.value.message


def test_a_channel_that_is_not_there_is_told_in_one_line_with_what_to_check(rattled, plan, tmp_path):
    wanted = replace(plan("lost"), conda=Conda(((tmp_path / "none").as_uri(),), ("greeting",)))
    with pytest.raises(BuildFailed, match="could not find subdir 'noarch'") as caught:
        rattled.comfy_env_build(wanted, print)
    assert "\n" not in caught.value.message and "check the channel's address" in caught.value.hint


# ---------------------------------------------------------------- the lock of the last build

def test_a_kept_lock_that_is_damaged_is_told_and_made_anew(maker, plan, request):
    wanted = plan(f"cut-{request.node.callspec.params['maker']}", "greeting")
    maker.comfy_env_build(wanted, print)
    lock = kept.folder(wanted, maker.settings) / "pixi.lock"
    whole = lock.read_bytes()
    lock.write_bytes(whole[:100])
    steps = []
    assert rebuilt(maker, wanted, steps.append).status is EnvStatus.READY
    assert any("is damaged and is made anew" in step.text for step in steps) and lock.read_bytes() == whole


def test_a_locked_package_its_channel_lost_is_told_with_the_way_out(rattled, plan, channel, tmp_path):
    lossy = tmp_path / "channel"
    shutil.copytree(channel, lossy, copy_function=os.link)
    wanted = replace(plan("lossy"), conda=Conda((lossy.as_uri(),), ("greeting",)))
    rattled.comfy_env_build(wanted, print)
    (lossy / "noarch" / "greeting-1.1-0.conda").unlink()
    channels.index(lossy)
    with pytest.raises(BuildFailed, match="greeting-1.1-0.conda cannot be read") as caught:
        rebuilt(rattled, wanted)
    assert "`comfy-env remove` forgets the lock" in caught.value.hint
    rattled.comfy_env_remove(wanted)
    assert dict(rattled.comfy_env_build(wanted, print).versions)["greeting"] == "1.0"


def test_a_plan_that_asks_for_another_python_does_not_follow_the_old_lock(rattled, plan):
    rattled.comfy_env_build(plan("other-python", "greeting", python=channels.MINOR), print)
    with pytest.raises(Unsatisfiable, match=r"python 3\.9\.\*"):
        rattled.comfy_env_build(plan("other-python", "greeting", python="3.9"), print)


# ---------------------------------------------------------------- who makes it

def test_an_environment_that_is_built_needs_no_tool_any_more(rattled, plan, tmp_path):
    old = tmp_path / "pixi"
    old.write_text("#!/bin/sh\n# fake_pixi, an old one\necho pixi 0.20.1\n")
    old.chmod(0o755)
    wanted = plan("built-once", "greeting")
    state = rattled.comfy_env_build(wanted, print)
    for pixi in (str(old), str(tmp_path / "none")):
        assert PixiBackend(replace(rattled.settings, pixi=pixi)).comfy_env_build(wanted, print).interpreter == state.interpreter


@pytest.fixture
def by_hand(rattled, plan, tmp_path):
    """A pack with an environment that pixi made in it, and its plan."""
    made = build_of(rattled.comfy_env_build(plan("for-a-hand", "greeting"), print))
    shutil.copytree(made / ".pixi", tmp_path / "pack" / ".pixi", symlinks=True)
    (tmp_path / "pack" / "pixi.toml").write_text("[dependencies]\ngreeting = '*'\n")
    return replace(plan("in-the-pack"), conda=None, root=tmp_path / "pack")


def test_removing_leaves_what_pixi_made_in_the_pack_and_says_so(rattled, by_hand):
    state = rattled.comfy_env_remove(by_hand)
    assert state.status is EnvStatus.READY and state.folder is None and "only pixi removes it" in state.reason
    assert state.interpreter.exists() and rattled.comfy_env_inspect(by_hand, True).status is EnvStatus.READY


def test_a_damaged_record_in_a_prefix_hides_only_its_package(rattled, by_hand):
    meta = by_hand.root / ".pixi" / "envs" / "default" / "conda-meta"
    assert dict(rattled.comfy_env_inspect(by_hand, True).versions)["greeting"] == "1.1"
    next(meta.glob("greeting*.json")).write_text("{")
    state = rattled.comfy_env_inspect(by_hand, True)
    assert state.status is EnvStatus.READY and state.channels and dict(state.versions) == {"python": channels.VERSION}


def test_damaged_notes_beside_a_build_are_told_by_name(rattled, plan):
    wanted = plan("notes", "greeting")
    build = build_of(rattled.comfy_env_build(wanted, print))
    (build / prefixes.FILE).write_text("{")
    assert rattled.comfy_env_inspect(wanted, True).status is EnvStatus.READY
    (build / activation.FILE).write_text("{")
    settings = replace(rattled.settings, runtime_folder=Settings.read().runtime_folder)
    with WorkerPool(settings) as pool, pytest.raises(SpawnFailed, match="activation.json.* is damaged") as caught:
        pool.call(wanted, "os:getpid")
    assert "`comfy-env remove`, then `comfy-env build`" in caught.value.hint


# ---------------------------------------------------------------- packages of a Python index

@pytest.mark.shares("folder")  # uv keeps a lock in the temporary folder
@pytest.mark.parametrize("uv", ["", "off"])
def test_a_python_package_nobody_has_is_unsatisfiable_too(tool_settings, plan, tmp_path, monkeypatch, uv):
    (tmp_path / "w").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wanted = plan(f"nobody-{uv}", "greeting", dependencies=("zznobody",), indexes=(str(tmp_path / "w"),))
    with pytest.raises(Unsatisfiable, match="zznobody"):
        PixiBackend(replace(tool_settings, uv=uv)).comfy_env_build(wanted, print)


# ---------------------------------------------------------------- two at once

BUILD = """
import sys
from pathlib import Path
from comfy_env.backends.pixi import PixiBackend
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvPlan

place, channel, key = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
backend = PixiBackend(Settings(envs_folder=place / "envs", log_folder=place / "logs", pixi="off"))
state = backend.comfy_env_build(EnvPlan(key=key, backend="pixi", conda=Conda((channel,), ("greeting",))), lambda step: None)
print(state.status.value, state.interpreter)
"""


def test_processes_that_build_at_once_wait_for_one_another_or_share_the_cache(channel, tmp_path):
    keys = ("same", "same", "other")
    argv = [[sys.executable, "-c", BUILD, str(tmp_path), channel.as_uri(), key] for key in keys]
    started = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in argv]
    said = [process.communicate()[0].split() for process in started]
    assert [words[0] for words in said] == ["ready"] * 3 and said[0] == said[1] and said[2] != said[0]
    assert len([entry for entry in (tmp_path / "envs" / "same").iterdir() if entry.is_dir()]) == 1


def test_a_full_disk_is_told_as_one_and_the_next_build_with_room_works(channel, tmp_path):
    cut = shutil.which("unshare")
    apart = [cut or "false", "--mount", "--map-root-user"]
    if subprocess.run([*apart, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no mount namespace")
    build = '"$2" -c "$3" "$1" "$4" k'
    script = f'mount -t tmpfs -o size=20m none "$1" && {{ {build}; mount -o remount,size=1g "$1"; {build}; }}'
    argv = [*apart, "sh", "-c", script, "sh", str(tmp_path), sys.executable, BUILD, channel.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    told = done.stderr
    assert "comfy_env.errors.BuildFailed" in told and "No space left on device" in told and "make room on the disk" in told, told
    assert done.stdout.startswith("ready "), "what was half unpacked is not taken for a package"


def test_a_log_is_kept_of_what_failed(rattled, plan):
    wanted = plan("logged", "greeting>=9")
    with pytest.raises(Unsatisfiable) as caught:
        rattled.comfy_env_build(wanted, print)
    log = paths.log_file(wanted, rattled.settings)
    assert str(log) in caught.value.hint and "No candidates were found for greeting >=9" in Path(log).read_text()
