"""Pixi environments: used where they are, made by a real pixi, or one error that says what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from comfy_env.backends.pixi import PixiBackend, manifest
from comfy_env.envs.sources import Sources
from comfy_env.errors import BuildFailed, PlanError
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvPlan, EnvStatus

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PIXI = """#!{python}
import os, pathlib, subprocess, sys
if sys.argv[1:] == ["--version"]:
    print("{says}")
    raise SystemExit
assert sys.argv[1:3] == ["install", "--manifest-path"], sys.argv
manifest = pathlib.Path(sys.argv[3])
print("solving", manifest.read_text())
if "broken" in manifest.read_text():
    raise SystemExit("cannot solve")
subprocess.run([sys.executable, "-m", "venv", "--without-pip", manifest.parent / ".pixi" / "envs" / "default"], check=True)
"""


@pytest.fixture
def pixi(tmp_path):
    def make(says="pixi 0.40.0"):
        program = tmp_path / "tools" / "pixi"
        program.parent.mkdir(exist_ok=True)
        program.write_text(PIXI.format(python=sys.executable, says=says))
        program.chmod(0o755)
        return str(program)

    return make


@pytest.fixture
def backend(tmp_path):
    def make(pixi=""):
        return PixiBackend(Settings(envs_folder=tmp_path / "envs", log_folder=tmp_path / "logs", pixi=pixi))

    return make


def read(plan):
    return tomllib.loads(manifest.text(plan, (), Sources()))


def test_without_pixi_one_error_says_what_is_missing_and_how_to_get_it(backend, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildFailed) as caught:
        backend().comfy_env_build(EnvPlan(key="k", backend="pixi"), print)
    assert "pixi is not on this machine" in caught.value.message and "COMFY_ENV_PIXI" in caught.value.hint
    assert backend().comfy_env_inspect(EnvPlan(key="k", backend="pixi"), True).status is EnvStatus.MISSING


def test_a_program_that_only_has_the_name_is_refused(backend, pixi):
    with pytest.raises(BuildFailed, match="is not pixi"):
        backend(pixi("some other tool 1.0")).comfy_env_build(EnvPlan(key="k", backend="pixi"), print)


def test_an_environment_is_built_from_the_plan_and_survives_a_failing_rebuild(backend, pixi, tmp_path):
    subject, plan = backend(pixi()), EnvPlan(key="k", backend="pixi", python="3.11")
    state = subject.comfy_env_build(plan, print)
    assert state.status is EnvStatus.READY and state.interpreter.parts[-5:-2] == (".pixi", "envs", "default")
    with pytest.raises(BuildFailed) as caught:
        subject.comfy_env_build(EnvPlan(key="k", backend="pixi", conda=Conda((), ("broken",))), print)
    assert "cannot solve" in "\n".join(caught.value.output)
    assert subject.comfy_env_inspect(plan, True).status is EnvStatus.READY


def test_the_packs_own_manifest_is_copied_and_its_folder_left_alone(backend, pixi, tmp_path):
    root = tmp_path / "pack"
    root.mkdir()
    (root / "pixi.toml").write_text("[workspace]\nname = 'mine'\n")
    subject, plan = backend(pixi()), EnvPlan(key="k", backend="pixi", root=root)
    state = subject.comfy_env_build(plan, print)
    assert (state.interpreter.parents[4] / "pixi.toml").read_text() == (root / "pixi.toml").read_text()
    assert os.listdir(root) == ["pixi.toml"]
    (root / "pixi.toml").write_text("[workspace]\nname = 'changed'\n")
    assert subject.comfy_env_inspect(plan, False).status is EnvStatus.STALE


def test_an_environment_that_pixi_made_in_the_pack_is_used_as_it_is(backend, tmp_path):
    root = tmp_path / "pack"
    interpreter = root / ".pixi" / "envs" / "default" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    (root / "pixi.toml").write_text("")
    plan = EnvPlan(key="k", backend="pixi", root=root)
    for probe in (False, True):
        state = backend().comfy_env_inspect(plan, probe)
        assert state.status is EnvStatus.READY and state.interpreter == interpreter
    interpreter.unlink()
    interpreter.write_text("#!/bin/sh\nexit 3\n")
    interpreter.chmod(0o755)
    assert backend().comfy_env_inspect(plan, True).status is EnvStatus.BROKEN


def test_the_manifest_says_what_the_plan_says():
    plan = EnvPlan(
        key="k",
        python=">=3.10,<3.13",
        dependencies=("numpy<2", "x[a]>=1", "w @ https://h/w.whl"),
        conda=Conda(("conda-forge", "nvidia"), ("ffmpeg>=6", "nvidia::cuda-toolkit 12.*", "git")),
        indexes=("https://h/simple",),
    )
    said = read(plan)
    assert said["dependencies"] == {
        "python": ">=3.10,<3.13",
        "ffmpeg": ">=6",
        "git": "*",
        "cuda-toolkit": {"version": "12.*", "channel": "nvidia"},
    }
    assert said["pypi-dependencies"] == {
        "numpy": {"version": "<2"},
        "x": {"version": ">=1", "extras": ["a"]},
        "w": {"url": "https://h/w.whl"},
    }
    assert said["workspace"]["channels"] == ["conda-forge", "nvidia"] and said["pypi-options"] == {"no-build": True}
    assert read(EnvPlan(key="k", python="3.10"))["dependencies"]["python"] == "3.10.*"


def test_an_index_with_credentials_is_not_written_to_disk():
    sources = Sources({"index-url": "https://u:hunter22@h/"}, ("https://u:hunter22@h/x", "https://open/simple"), (Path("/w"),))
    text = manifest.text(EnvPlan(key="k", indexes=()), (), sources)
    assert "hunter22" not in text and "https://open/simple" in text and "/w" in text


def test_what_pixi_cannot_say_is_refused():
    for plan in (EnvPlan(key="k", dependencies=('x; python_version < "3.11"',)), EnvPlan(key="k", conda=Conda((), ("!!",)))):
        with pytest.raises(PlanError):
            read(plan)
