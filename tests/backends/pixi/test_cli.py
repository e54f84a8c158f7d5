"""What a real pixi is asked and how its answers are taken, shown with fake_pixi: a stand-in that lets py-rattler do the work."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from comfy_env.backends.pixi import PixiBackend, words
from comfy_env.envs import host_torch, paths
from comfy_env.errors import BuildCancelled, BuildFailed, PackageDamaged, PlatformMissing, Unsatisfiable
from comfy_env.values import Conda, EnvStatus

from . import channel as channels

pytestmark = pytest.mark.real


def build_of(state):
    return state.interpreter.parents[4]


def test_an_environment_is_made_from_the_plan_and_its_tool_is_told(faked, plan, channel, fake_pixi):
    state = faked.comfy_env_build(plan("by-pixi", "greeting 1.0.*"), print)
    assert state.status is EnvStatus.READY and state.provider == "pixi 0.70.0" and state.channels == (channel.as_uri(),)
    assert dict(state.versions)["greeting"] == "1.0"
    log = paths.log_file(plan("by-pixi"), faked.settings).read_text()
    assert f"$ {fake_pixi} install --manifest-path" in log and "fake_pixi: a test's stand-in for pixi" in log
    assert (build_of(state) / ".pixi" / "config.toml").read_text() == "detached-environments = false\n"


def test_a_failing_rebuild_leaves_the_old_environment(faked, plan):
    wanted = plan("by-pixi-twice", "greeting 1.0.*")
    before = faked.comfy_env_build(wanted, print)
    with pytest.raises(Unsatisfiable, match="installing with pixi: pixi exited with status 1: .*No candidates were found for greeting"):
        faked.comfy_env_build(plan("by-pixi-twice", "greeting>=9"), print)
    assert faked.comfy_env_inspect(wanted, True).interpreter == before.interpreter


def test_the_lock_of_the_last_build_makes_the_same_again(faked, plan, channel, tmp_path):
    grown = tmp_path / "channel"
    shutil.copytree(channel, grown)
    wanted = replace(plan("by-pixi-locked"), conda=Conda((grown.as_uri(),), ("greeting",)))
    first = faked.comfy_env_build(wanted, print)
    listed = (build_of(first) / "packages.txt").read_bytes()
    channels.greeting(grown, "3.0", "later")
    channels.index(grown)
    shutil.rmtree(first.folder)
    steps = []
    again = faked.comfy_env_build(wanted, steps.append)
    assert (build_of(again) / "packages.txt").read_bytes() == listed and any("installing what is locked" == step.text for step in steps)


def test_a_dry_run_asks_nothing_and_says_who_resolves(faked, plan):
    changes = faked.comfy_env_plan(plan("by-pixi-planned", "greeting", dependencies=("x",)))
    assert changes.install == ("greeting", "x") and "pixi resolves these" in changes.notes[0]


def test_a_cancelled_pixi_is_ended(faked, plan):
    def stop(step):
        if "solving" in step.text:
            raise BuildCancelled("enough", env=step.key)

    with pytest.raises(BuildCancelled):
        faked.comfy_env_build(plan("by-pixi-cancelled", "greeting"), stop)
    assert faked.comfy_env_inspect(plan("by-pixi-cancelled", "greeting"), False).status is EnvStatus.MISSING


HOOKLESS = """#!{python}
import sys
from pathlib import Path
if sys.argv[1:] == ["--version"]:
    print("pixi 0.70.0")
elif sys.argv[1] == "shell-hook":
    {hook}
else:
    folder = Path(sys.argv[sys.argv.index("--manifest-path") + 1]).parent
    (folder / ".pixi" / "envs" / "default" / "bin").mkdir(parents=True)
"""


@pytest.mark.parametrize(("hook", "said"), [("print('hello')", "answered 'hello"), ("sys.exit('no such command')", "no such command")])
def test_an_activation_that_cannot_be_read_fails_the_build(plan, tool_settings, tmp_path, hook, said):
    program = tmp_path / "pixi"
    program.write_text(HOOKLESS.format(python=sys.executable, hook=hook))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BuildFailed, match="pixi shell-hook") as caught:
        PixiBackend(replace(tool_settings, pixi=str(program))).comfy_env_build(plan("hookless"), print)
    assert said in caught.value.message


# ---------------------------------------------------------------- a tool's words

SOLVE = """  × failed to solve requirements of environment 'default' for platform 'linux-
  │ 64'
  ├─▶   × failed to solve the environment
  │
  ╰─▶ Cannot solve the request because of: No candidates were found for nothing
      *."""
PLATFORM = """Error:   × The workspace does not support 'osx-arm64'.
  │ Add it with 'pixi workspace platform add osx-arm64'."""
DAMAGED = """  × failed to fetch x-1.0-0.conda
  ├─▶ failed to interact with the package cache layer.
  ╰─▶ hash mismatch when unpacking: expected ab, got cd"""


FULL = """  × failed to fetch x-1.0-0.conda
  ├─▶ failed to interact with the package cache layer.
  ╰─▶ failed to unpack `lib/x.so`: No space left on device (os error 28)"""
OFFLINE = """  × error sending request for url (https://conda.anaconda.org/conda-forge/linux-64/repodata.json.zst)
  ╰─▶ client error (Connect)"""


SAID = [
    (SOLVE, Unsatisfiable), (PLATFORM, PlatformMissing), (DAMAGED, PackageDamaged),
    ("boom", BuildFailed), (FULL, BuildFailed), (OFFLINE, BuildFailed),
]


@pytest.mark.parametrize(("text", "kind"), SAID)
def test_what_pixi_says_decides_the_errors_name(text, kind):
    error = words.named(BuildFailed("installing: pixi exited with status 1", env="k", output=tuple(text.splitlines()), hint="see the log"))
    assert type(error) is kind and error.env == "k" and error.hint.startswith("see the log")
    assert error.output == tuple(text.splitlines()) and "×" not in error.message and "│" not in error.message


@pytest.mark.parametrize(("text", "step"), [
    (SOLVE, "name a channel"), (PLATFORM, "ask its author"), (DAMAGED, "fetched"), (FULL, "make room"), (OFFLINE, "check the network"),
])
def test_what_is_known_of_a_cause_names_the_next_step(text, step):
    error = words.named(BuildFailed("installing", env="k", output=tuple(text.splitlines()), hint="see the log"))
    assert error.hint.startswith("see the log; ") and step in error.hint


def test_a_chain_of_causes_is_told_in_one_line():
    said = "Request failed\nCaused by: dns error\nCaused by: no such name\n"
    assert words.in_one_line(said) == "Request failed: dns error: no such name"


def test_words_that_are_wrapped_in_a_frame_are_still_understood():
    assert words.kind_of(["  │ Cannot solve", "  │ the request because of: x"]) == "unsatisfiable"
    assert words.gist(["installing", "", "  × hash", "boom"]) == "boom"


# ---------------------------------------------------------------- CUDA wheels

@pytest.fixture
def card(monkeypatch):
    """The host has a torch for CUDA, or so its metadata says."""
    monkeypatch.setattr(host_torch, "host_version", lambda: "2.8.0+cu128")


def test_without_an_index_of_cuda_wheels_that_environment_alone_fails(rattled, faked, plan, card):
    for backend in (rattled, faked):
        with pytest.raises(BuildFailed, match="COMFY_ENV_CUDA_WHEELS_INDEX is not set") as caught:
            backend.comfy_env_build(plan("card-fails", "greeting", dependencies=("my-kernel @ cuda-wheels:",)), print)
        assert caught.value.env == "card-fails"
    assert rattled.comfy_env_build(plan("no-card-is-fine", "greeting"), print).status is EnvStatus.READY


@pytest.mark.shares("folder")  # uv keeps a lock in the temporary folder
def test_a_cuda_wheel_that_fits_is_installed(tool_settings, plan, card, tmp_path):
    from .. import wheels

    for version, word in (("1.0+cu128torch28", "this"), ("2.0+cu126torch28", "another")):
        wheels.make(tmp_path / "w", "zzkernel", version, code=f"WORD = {word!r}\n", tag=f"cp{channels.MINOR.replace('.', '')}-none-any")
    backend = PixiBackend(replace(tool_settings, cuda_wheels_index=str(tmp_path / "w")))
    state = backend.comfy_env_build(plan("card-works", "greeting", dependencies=("zzkernel @ cuda-wheels:",)), print)
    code = "import zzkernel, greeting; print(zzkernel.WORD)"
    assert subprocess.run([state.interpreter, "-I", "-c", code], capture_output=True, text=True, check=True).stdout == "this\n"
