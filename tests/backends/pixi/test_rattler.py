"""Environments made by py-rattler from a real channel on disk: solved, locked, installed, and made again the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.backends.pixi import PixiBackend, kept
from comfy_env.envs import paths
from comfy_env.errors import BuildCancelled, BuildFailed, PackageDamaged, PlatformMissing, Unsatisfiable
from comfy_env.packs.pixi_platforms import here
from comfy_env.values import Conda, EnvStatus

from .. import wheels
from . import channel as channels
from . import locks

pytestmark = pytest.mark.real


def run(state, code):
    return subprocess.run([state.interpreter, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def build_of(state):
    """The folder of the build an interpreter belongs to."""
    return state.interpreter.parents[4]


def log_of(backend, plan):
    return paths.log_file(plan, backend.settings).read_text()


def test_an_environment_is_solved_installed_and_its_python_lives_in_it(rattled, plan, channel):
    steps = []
    wanted = plan("made", "greeting")
    state = rattled.comfy_env_build(wanted, steps.append)
    assert state.status is EnvStatus.READY and state.provider.startswith("py-rattler ")
    assert state.channels == (channel.as_uri(),) and dict(state.versions) == {"python": channels.VERSION, "greeting": "1.1"}
    assert run(state, "import sys, greeting; print(sys.prefix, greeting.WORD)") == f"{state.interpreter.parents[1]} good day"
    told = [step.text for step in steps]
    assert any("solving 2 conda requirements" in text for text in told) and any("installing 2 conda packages" in text for text in told)
    assert rattled.comfy_env_build(wanted, print).interpreter == state.interpreter


def test_a_dry_run_tells_packages_and_sizes_and_makes_nothing(rattled, plan):
    wanted = plan("only-planned", "greeting 1.0.*")
    changes = rattled.comfy_env_plan(wanted)
    assert changes.install == ("greeting 1.0 0", f"python {channels.VERSION} 0") and changes.python == channels.VERSION
    assert changes.download_bytes > 1_000_000
    assert rattled.comfy_env_inspect(wanted, False).status is EnvStatus.MISSING


@pytest.mark.shares("folder")  # uv keeps a lock in the temporary folder
@pytest.mark.parametrize("uv", ["", "off"])
def test_packages_of_a_python_index_are_added_beside_what_conda_provides(tool_settings, plan, tmp_path, uv):
    rattled = PixiBackend(replace(tool_settings, uv=uv))
    wheels.make(tmp_path / "w", "zzextra", "2.0", requires=("zzhelper>=1",))
    wheels.make(tmp_path / "w", "zzhelper", "1.5")
    wanted = plan(f"mixed-{uv}", "greeting", dependencies=("zzextra",), indexes=(str(tmp_path / "w"),))
    state = rattled.comfy_env_build(wanted, print)
    assert run(state, "import zzextra, zzhelper, greeting; print(zzextra.__file__)").startswith(str(state.interpreter.parents[1]))
    assert (build_of(state) / kept.PYPI).read_text() == "zzextra==2.0\nzzhelper==1.5\n"
    wheels.make(tmp_path / "w", "zzhelper", "1.9")
    rattled_again = rebuilt(rattled, wanted, state)
    assert run(rattled_again, "import zzhelper; print(zzhelper.__version__)") == "1.5"


def rebuilt(backend, plan, state):
    """Delete an environment behind the backend's back and build it again."""
    shutil.rmtree(state.folder)
    return backend.comfy_env_build(plan, print)


def test_a_lock_makes_a_byte_equal_package_list_again_whatever_the_channel_has_since(rattled, channel, tmp_path, plan):
    grown = tmp_path / "channel"
    shutil.copytree(channel, grown)
    wanted = replace(plan("locked"), conda=Conda((grown.as_uri(),), ("greeting",)))
    first = rattled.comfy_env_build(wanted, print)
    listed, lock = ((build_of(first) / name).read_bytes() for name in ("packages.txt", "pixi.lock"))
    channels.greeting(grown, "3.0", "later")
    channels.index(grown)
    again = rebuilt(rattled, wanted, first)
    assert build_of(again) != build_of(first)
    assert (build_of(again) / "packages.txt").read_bytes() == listed and (build_of(again) / "pixi.lock").read_bytes() == lock
    assert b"greeting-1.1-0.conda" in listed and run(again, "import greeting; print(greeting.WORD)") == "good day"
    changed = rattled.comfy_env_build(replace(wanted, conda=Conda((grown.as_uri(),), ("greeting>=1",))), print)
    assert run(changed, "import greeting; print(greeting.WORD)") == "later", "another declaration is solved anew"
    assert rattled.comfy_env_remove(wanted).status is EnvStatus.MISSING and not kept.folder(wanted, rattled.settings).exists()


# ---------------------------------------------------------------- what goes wrong, by name

def refused(backend, plan, kind):
    with pytest.raises(BuildFailed) as caught:
        backend.comfy_env_build(plan, print)
    assert type(caught.value) is kind, caught.value
    assert caught.value.env == plan.key and str(paths.log_file(plan, backend.settings)) in caught.value.hint
    assert backend.comfy_env_inspect(plan, True).status is EnvStatus.MISSING
    return caught.value


def test_a_damaged_package_is_named_and_the_old_environment_stays(rattled, plan, damaged):
    copy = damaged("greeting-1.1-0.conda")
    wanted = replace(plan("damaged"), conda=Conda((copy.as_uri(),), ("greeting",)))
    error = refused(rattled, wanted, PackageDamaged)
    assert "greeting-1.1-0.conda is not what its channel says" in error.message and "sha256" in error.message
    assert "greeting-1.1-0.conda is not what its channel says" in log_of(rattled, wanted)


@pytest.mark.parametrize(("conda", "said"), [
    (("greeting>=2",), "No candidates were found for greeting >=2"), (("needs-later",), "greeting >=7"),
    (("no-such-thing",), "no-such-thing"),
])
def test_what_cannot_be_satisfied_is_told_in_the_solvers_words(rattled, plan, conda, said):
    wanted = plan("unsatisfiable-" + conda[0].split(">")[0], *conda)
    error = refused(rattled, wanted, Unsatisfiable)
    assert said in error.message and said in log_of(rattled, wanted)


def test_a_package_for_hardware_that_is_not_here_is_unsatisfiable(rattled, plan):
    assert "__cuda" in refused(rattled, plan("no-card", "needs-card"), Unsatisfiable).message


def test_a_channel_that_is_not_there_is_a_failed_build_with_its_address(rattled, plan, tmp_path):
    wanted = replace(plan("nowhere"), conda=Conda(((tmp_path / "none").as_uri(),), ("greeting",)))
    assert "tmp_path" not in refused(rattled, wanted, BuildFailed).message
    assert str(tmp_path / "none") in log_of(rattled, wanted)


def test_one_failing_pack_stops_no_other_and_a_second_run_touches_only_it(rattled, plan):
    plans = [plan("three-a", "greeting"), plan("three-b", "greeting>=9"), plan("three-c", "greeting 1.0.*")]

    def everything():
        found = []
        for one in plans:
            try:
                found.append(rattled.comfy_env_build(one, print).interpreter)
            except Unsatisfiable:
                found.append(None)
        return found

    first = everything()
    locks = [file.read_bytes() for file in sorted(kept.folder(plans[0], rattled.settings).iterdir())]
    assert first[0] and first[2] and first[1] is None
    plans[1] = plan("three-b", "greeting")
    second = everything()
    assert (second[0], second[2]) == (first[0], first[2]) and second[1]
    assert locks == [file.read_bytes() for file in sorted(kept.folder(plans[0], rattled.settings).iterdir())]


# ---------------------------------------------------------------- ended half-way

def test_a_cancelled_build_leaves_the_old_environment_and_no_program(rattled, plan):
    wanted = plan("cancelled", "greeting 1.0.*")
    before = rattled.comfy_env_build(wanted, print)

    def stop(step):
        if "checking 2 packages" in step.text:
            raise BuildCancelled("enough", env=step.key)

    with pytest.raises(BuildCancelled):
        rattled.comfy_env_build(plan("cancelled", "greeting"), stop)
    state = rattled.comfy_env_inspect(wanted, True)
    assert state.status is EnvStatus.READY and state.interpreter == before.interpreter
    assert [entry.name for entry in state.folder.iterdir() if entry.is_dir()] == [build_of(before).name]


BUILD = """
import sys
from pathlib import Path
from comfy_env.backends.pixi import PixiBackend
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvPlan

place, channel = Path(sys.argv[1]), sys.argv[2]
backend = PixiBackend(Settings(envs_folder=place / "envs", log_folder=place / "logs", pixi="off"))
plan = EnvPlan(key="k", backend="pixi", conda=Conda((channel,), ("greeting",)))
state = backend.comfy_env_build(plan, lambda step: print(step.text, flush=True))
print("state", state.status.value, state.interpreter)
"""


def test_a_build_whose_host_is_killed_leaves_nothing_running_and_is_done_again(channel, tmp_path, eventually):
    argv = [sys.executable, "-c", BUILD, str(tmp_path), channel.as_uri()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as host:
        for line in host.stdout:
            if "checking 2 packages" in line:
                os.kill(host.pid, signal.SIGKILL)
                break
    eventually(lambda: not running(tmp_path), 10, "the program ends with its host")
    again = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "state ready" in again.stdout


def running(place: Path) -> list[int]:
    """Processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            words = b""
        if os.fsencode(place) in words and b"conda_program" in words:
            found.append(int(entry.name))
    return found


# ---------------------------------------------------------------- without a network, and through a mirror

def test_it_is_built_without_any_network(channel, tmp_path):
    cut = shutil.which("unshare")
    probe = [cut, "--net", "--map-root-user", "true"] if cut else ["false"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no network namespace")
    done = subprocess.run([cut, "--net", "--map-root-user", sys.executable, "-c", BUILD, str(tmp_path), channel.as_uri()],
                          capture_output=True, text=True, env={**os.environ, "PIXI_OFFLINE": "1"}, check=False)
    assert "state ready" in done.stdout, done.stdout + done.stderr
    assert "offline: only channels on disk" in done.stdout


def test_pixis_own_configuration_of_mirrors_is_followed(plan, served, tool_settings, tmp_path, monkeypatch):
    address, asked = served
    config = tmp_path / "config.toml"
    config.write_text(f'[mirrors]\n"https://conda.anaconda.org/conda-forge" = ["{address}/"]\n')
    monkeypatch.setenv("PIXI_CONFIG_FILE", str(config))
    monkeypatch.setenv("TOKEN_OF_MINE", "hunter22")
    fresh = PixiBackend(replace(tool_settings, envs_folder=tmp_path / "a b [x] é中 %TEMP% & (1)"))
    state = fresh.comfy_env_build(replace(plan("mirrored"), conda=Conda(("conda-forge",), ("greeting 1.0.*",))), print)
    assert run(state, "import greeting; print(greeting.WORD)") == "hello"
    assert any(path.endswith("greeting-1.0-0.conda") for path, _ in asked) and {agent for _, agent in asked} == {"comfy-env"}
    assert "hunter22" not in (build_of(state) / "activation.json").read_text(), "a script that looks for secrets sees none"


def test_another_platforms_lock_is_refused_by_name(rattled, plan, channel, tmp_path):
    lock = tmp_path / "pack" / "pixi.lock"
    lock.parent.mkdir()
    (lock.parent / "pixi.toml").write_text(f'[workspace]\nchannels = ["{channel.as_uri()}"]\nplatforms = ["{here()}", "win-arm64"]\n')
    lock.write_text(locks.write(6, "win-arm64", channel.as_uri() + "/", []))
    wanted = replace(plan("elsewhere"), conda=None, root=lock.parent)
    assert f"not for {here()}" in refused(rattled, wanted, PlatformMissing).message


def test_what_a_build_is_asked_is_no_secret_and_stays_beside_it(rattled, plan):
    state = rattled.comfy_env_inspect(plan("made", "greeting"), False)
    if state.status is not EnvStatus.READY:
        state = rattled.comfy_env_build(plan("made", "greeting"), print)
    assert {"request.json", "answer.json", "packages.txt", "pixi.lock", "activation.json"} <= set(os.listdir(build_of(state)))
    assert isinstance(rattled, PixiBackend)
