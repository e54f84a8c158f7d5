"""Who makes conda environments: pixi, else py-rattler, else one that is there is used, else one error says what is missing."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.backends.pixi import PixiBackend, providers
from comfy_env.errors import BuildFailed, PlanError, ToolTooOld
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan, EnvStatus

PLAN = EnvPlan(key="k", backend="pixi")


@pytest.fixture
def program(tmp_path):
    """`program("pixi 0.70.0")` makes an executable that answers so."""

    def make(says: str, status: int = 0) -> str:
        file = tmp_path / "tools" / "pixi"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
        file.chmod(0o755)
        return str(file)

    return make


@pytest.fixture
def no_rattler(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def mine(tmp_path):
    def make(pixi=""):
        return PixiBackend(Settings(envs_folder=tmp_path / "envs", log_folder=tmp_path / "logs", pixi=pixi))

    return make


def test_the_pixi_that_is_named_goes_before_the_one_on_path(program, monkeypatch, tmp_path):
    named = program("pixi 0.71.2")
    monkeypatch.setattr(shutil, "which", lambda name: "/somewhere/else/pixi")
    provider, why = providers.find(PLAN, Settings(pixi=named))
    assert (provider.kind, provider.version, provider.path, why) == ("pixi", "0.71.2", Path(named), ())


def test_the_pixi_on_path_is_taken_when_none_is_named(program, monkeypatch):
    found = program("pixi 0.43.0")
    monkeypatch.setattr(shutil, "which", lambda name: found if name == "pixi" else None)
    assert str(providers.find(PLAN, Settings())[0]) == "pixi 0.43.0"


def test_an_old_pixi_is_refused_by_name_with_its_path_and_the_way_out(program, mine):
    old = program("pixi 0.42.1")
    with pytest.raises(ToolTooOld, match="pixi 0.42.1 .* is too old: 0.43 or newer") as caught:
        mine(old).comfy_env_build(PLAN, print)
    assert old in caught.value.message and "COMFY_ENV_PIXI=off" in caught.value.hint and caught.value.env == "k"


def test_a_named_program_that_only_has_the_name_is_refused(program, mine):
    with pytest.raises(BuildFailed, match="is not pixi") as caught:
        mine(program("some other tool 1.0")).comfy_env_build(PLAN, print)
    assert "no package of a Python index is it" in caught.value.hint


def test_a_program_on_path_that_only_has_the_name_is_passed_by(program, monkeypatch, no_rattler):
    other = program("pixi from somewhere")
    monkeypatch.setattr(shutil, "which", lambda name: other)
    provider, why = providers.find(PLAN, Settings())
    assert provider is None and f"{other} is not pixi" in why[0]


def test_py_rattler_serves_where_no_pixi_does(monkeypatch):
    pytest.importorskip("rattler")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert providers.find(PLAN, Settings())[0].kind == providers.find(PLAN, Settings(pixi="off"))[0].kind == "py-rattler"


def test_an_old_py_rattler_is_refused_by_name(monkeypatch):
    pytest.importorskip("rattler")
    monkeypatch.setattr(providers.metadata, "version", lambda name: "0.9.0")
    with pytest.raises(ToolTooOld, match="py-rattler 0.9.0"):
        providers.find(PLAN, Settings(pixi="off"))


def test_another_package_of_that_import_name_is_not_py_rattler(monkeypatch):
    pytest.importorskip("rattler")

    def unknown(name):
        raise providers.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(providers.metadata, "version", unknown)
    provider, why = providers.find(PLAN, Settings(pixi="off"))
    assert provider is None and "is another package than py-rattler" in why[-1]


def test_without_any_of_the_three_one_error_names_each_and_how_to_get_it(mine, no_rattler, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (tmp_path / "pixi.toml").write_text("[workspace]\n")
    plan = replace(PLAN, root=tmp_path)
    for ask in (lambda: mine().comfy_env_build(plan, print), lambda: mine().comfy_env_plan(plan)):
        with pytest.raises(BuildFailed, match="nothing here can make a conda environment") as caught:
            ask()
        told = "\n".join(caught.value.output)
        assert "no pixi is on PATH" in told and "py-rattler is not installed" in told and f"{tmp_path}/.pixi/envs/default" in told
        assert "COMFY_ENV_PIXI" in caught.value.hint and f"{sys.executable} -m pip install 'py-rattler>=" in caught.value.hint
    assert mine().comfy_env_inspect(plan, True).status is EnvStatus.MISSING


@pytest.fixture
def made_by_hand(tmp_path):
    """A pack in which pixi made an environment."""
    interpreter = tmp_path / "pack" / ".pixi" / "envs" / "default" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    (tmp_path / "pack" / "pixi.toml").write_text("")
    return EnvPlan(key="k", backend="pixi", root=tmp_path / "pack"), interpreter


def test_an_environment_that_pixi_made_in_the_pack_is_used_as_it_is(mine, made_by_hand, no_rattler, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    plan, interpreter = made_by_hand
    for state in (mine().comfy_env_inspect(plan, False), mine().comfy_env_inspect(plan, True), mine().comfy_env_build(plan, print)):
        assert state.status is EnvStatus.READY and state.interpreter == interpreter and state.provider == "pixi, by hand"
    interpreter.unlink()
    interpreter.write_text("#!/bin/sh\nexit 3\n")
    interpreter.chmod(0o755)
    assert mine().comfy_env_inspect(plan, True).status is EnvStatus.BROKEN
    with pytest.raises(BuildFailed, match="nothing here can make"):
        mine().comfy_env_build(plan, print)


def test_a_quick_look_starts_nothing(mine, made_by_hand, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    assert mine().comfy_env_inspect(made_by_hand[0], False).status is EnvStatus.READY
    assert mine().comfy_env_inspect(PLAN, False).status is EnvStatus.MISSING


def test_two_declarations_at_once_are_refused(mine, made_by_hand):
    with pytest.raises(PlanError, match="stand beside"):
        mine().comfy_env_build(replace(made_by_hand[0], dependencies=("x",)), print)
