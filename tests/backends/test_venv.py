"""Environments of the venv backend: built from a folder of wheels, for real, with both installers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.backends.venv import VenvBackend
from comfy_env.envs import paths, stamps
from comfy_env.errors import BuildCancelled, BuildFailed, PlanError
from comfy_env.values import EnvPlan, EnvStatus, PackId

from . import wheels

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ODD = "a b [x] é中 %TEMP% & (1)"


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    """A folder of wheels, and no other index."""
    for name in ("PIP_FIND_LINKS", "PIP_CONSTRAINT", "UV_FIND_LINKS", "UV_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "wheels"
    wheels.make(folder, "demo_lib", "1.0", "__version__ = '1.0'\ndef say():\n    print('said')\n")
    wheels.make(folder, "demo_lib", "2.0")
    wheels.make(folder, "demo_top", "1.0", requires=("demo_lib<2",))
    return folder


@pytest.fixture
def backend(settings):
    return VenvBackend(settings)


@pytest.fixture
def plan(wheelhouse):
    return EnvPlan(key="demo", dependencies=("demo-top",), indexes=(str(wheelhouse),))


def told(steps):
    return lambda step: steps.append(step)


def silent(step):
    """Nobody watches this build."""


def status(backend, plan, probe=False):
    return backend.comfy_env_inspect(plan, probe).status


def run(interpreter, code):
    answer = subprocess.run([interpreter, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    return answer.stdout.strip()


@pytest.mark.parametrize("uv", ["", "off"])
def test_a_build_makes_what_the_plan_says_and_tells_its_steps(settings, plan, uv):
    backend, steps = VenvBackend(replace(settings, uv=uv)), []
    assert status(backend, plan) is EnvStatus.MISSING
    state = backend.comfy_env_build(plan, told(steps))
    assert state.status is EnvStatus.READY and state.folder == paths.env_folder(plan, settings)
    assert dict(state.versions)["demo-top"] == "1.0"
    assert run(state.interpreter, "import demo_lib; print(demo_lib.__version__)") == "1.0"
    assert steps[-1].share == 1.0 and {step.key for step in steps} == {"demo"}
    assert status(backend, plan, probe=True) is EnvStatus.READY
    assert os.access(state.interpreter.parent / "demo_lib-say", os.X_OK)
    said = subprocess.run([state.interpreter.parent / "demo_lib-say"], capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout == "said\n"
    assert backend.comfy_env_plan(plan).install == () == backend.comfy_env_plan(plan).remove


@pytest.mark.parametrize("uv", ["", "off"])
def test_a_plan_tells_what_a_build_would_do_and_does_nothing(settings, plan, uv, tmp_path):
    changes = VenvBackend(replace(settings, uv=uv)).comfy_env_plan(plan)
    assert changes.install == ("demo-lib==1.0", "demo-top==1.0") and changes.python.startswith(f"{HERE}.")
    assert not paths.env_folder(plan, settings).exists()


def test_a_second_build_finds_the_first_and_changes_nothing(backend, plan):
    first, steps = backend.comfy_env_build(plan, silent), []
    assert backend.comfy_env_build(plan, told(steps)).interpreter == first.interpreter
    assert [step.text for step in steps] == ["it is built already"]


def test_an_environment_sees_itself_alone(backend, plan, tmp_path, monkeypatch):
    """Field case B22: no user site, no entry outside of the environment and the base's own library."""
    planted = tmp_path / "home" / ".local" / "lib" / f"python{HERE}" / "site-packages"
    planted.mkdir(parents=True)
    (planted / "planted.py").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(planted))
    state = backend.comfy_env_build(plan, silent)
    seen = json.loads(
        run(state.interpreter, "import sys, site, json; print(json.dumps([sys.path, sys.base_prefix, site.ENABLE_USER_SITE]))")
    )
    library, user = os.path.realpath(seen[1]), seen[2]
    inside = [os.path.realpath(entry).startswith((os.path.realpath(state.folder), library)) for entry in seen[0]]
    assert all(inside) and user is False
    site_packages = [entry for entry in seen[0] if entry.endswith("site-packages")]
    assert site_packages and all(entry.startswith(str(state.folder)) for entry in site_packages)


def test_a_launchers_variables_and_a_strange_home_change_nothing(backend, plan, settings, tmp_path, monkeypatch):
    """Field case B19."""
    home = tmp_path / "home"
    home.mkdir()
    for name, value in {
        "HOME": str(home),
        "UV_BUILD_CONSTRAINT": "rel.txt",
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_TARGET": str(tmp_path / "target"),
        "UV_PROJECT_ENVIRONMENT": str(tmp_path / "project"),
        "UV_PYTHON": "2.7",
        "PYTHONPATH": str(tmp_path),
        "VIRTUAL_ENV": "/a",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    state = backend.comfy_env_build(plan, silent)
    assert run(state.interpreter, "import demo_top; print(demo_top.__file__)").startswith(str(state.folder))
    log = paths.log_file(plan, settings).read_text()
    assert all(name in log for name in ("UV_BUILD_CONSTRAINT", "PIP_TARGET", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "VIRTUAL_ENV"))
    assert list(home.rglob("*")) == [] and not (tmp_path / "target").exists() and not (tmp_path / "project").exists()


@pytest.mark.parametrize("uv", ["", pytest.param("off", marks=pytest.mark.slow)])
@pytest.mark.parametrize("root", [ODD, "x" * 115 + "/" + "y" * 115])
def test_odd_and_long_roots_are_built_used_and_removed(settings, plan, tmp_path, root, uv):
    """Field case B88."""
    backend = VenvBackend(replace(settings, uv=uv, envs_folder=tmp_path / root))
    state = backend.comfy_env_build(plan, silent)
    assert run(state.interpreter, "import demo_lib; print(demo_lib.__version__)") == "1.0"
    assert status(backend, plan, probe=True) is EnvStatus.READY
    assert backend.comfy_env_remove(plan).status is EnvStatus.MISSING
    assert not state.folder.exists()


def test_a_changed_plan_is_stale_and_its_build_replaces_the_old_one(backend, plan):
    old = backend.comfy_env_build(plan, silent)
    changed = replace(plan, dependencies=("demo-lib>=2",))
    stale = backend.comfy_env_inspect(changed, True)
    assert stale.status is EnvStatus.STALE and stale.interpreter == old.interpreter and stale.fix
    assert set(backend.comfy_env_plan(changed).remove) == {"demo-lib==1.0", "demo-top==1.0"} - {"demo-lib==1.0"}
    new = backend.comfy_env_build(changed, silent)
    assert new.status is EnvStatus.READY and run(new.interpreter, "import demo_lib; print(demo_lib.__version__)") == "2.0"
    assert not old.interpreter.exists()


def test_an_environment_whose_python_the_declaration_allows_is_not_stale_and_status_plan_and_build_agree(backend, plan, interpreters):
    """The demo picks one of the Pythons a pack allows; the pack's own declaration must not call that stale."""
    minor = next(iter(interpreters))
    built = backend.comfy_env_build(replace(plan, python=minor), silent)
    declared = replace(plan, python=">=3.9,<3.20")
    assert status(backend, declared, probe=True) is EnvStatus.READY
    changes = backend.comfy_env_plan(declared)
    assert (changes.install, changes.remove) == ((), ()) and changes.python.startswith(minor) and "nothing to do" in changes.notes[0]
    assert backend.comfy_env_build(declared, silent).interpreter == built.interpreter
    elsewhere = backend.comfy_env_inspect(replace(plan, python=f"!={minor}.*"), False)
    assert elsewhere.status is EnvStatus.STALE
    assert elsewhere.reason == f"it has Python {changes.python}, and its declaration wants !={minor}.*"


@pytest.mark.parametrize("uv", ["", pytest.param("off", marks=pytest.mark.slow)])
def test_a_failed_build_leaves_the_old_environment_and_names_its_log(settings, plan, uv):
    backend = VenvBackend(replace(settings, uv=uv))
    old = backend.comfy_env_build(plan, silent)
    broken = replace(plan, dependencies=("not-in-any-index",))
    for _ in range(2):  # a second try finds the same state as the first
        with pytest.raises(BuildFailed) as caught:
            backend.comfy_env_build(broken, silent)
        log = paths.log_file(plan, settings)
        assert (
            str(log) in caught.value.hint and "not-in-any-index" in "\n".join(caught.value.output) and "not-in-any-index" in log.read_text()
        )
        assert status(backend, plan, probe=True) is EnvStatus.READY
        assert [entry.name for entry in old.folder.iterdir() if entry.is_dir()] == [old.interpreter.parents[1].name]


def test_each_environment_is_built_and_judged_alone(backend, plan, wheelhouse):
    """Field case B16: one damaged wheel."""
    (wheelhouse / "bad_wheel-1.0-py3-none-any.whl").write_bytes(b"this is no archive")
    plans = [replace(plan, key="a"), replace(plan, key="b", dependencies=("bad-wheel",)), replace(plan, key="c")]
    backend.comfy_env_build(plans[0], silent)
    with pytest.raises(BuildFailed):
        backend.comfy_env_build(plans[1], silent)
    backend.comfy_env_build(plans[2], silent)
    assert [status(backend, each, probe=True) for each in plans] == [EnvStatus.READY, EnvStatus.MISSING, EnvStatus.READY]
    assert str(paths.log_file(plans[1], backend.settings)) in backend.comfy_env_inspect(plans[1], False).reason


@pytest.mark.parametrize("uv", ["", "off"])
def test_a_package_without_a_wheel_fails_and_says_how_to_allow_it(settings, plan, wheelhouse, uv):
    """Field case B17."""
    source, ran = wheelhouse / "only_source-1.0", wheelhouse / "it-ran"
    source.mkdir()
    (source / "setup.py").write_text(
        f"open({str(ran)!r}, 'w'); from setuptools import setup; setup(name='only-source', version='1.0')"
    )
    with tarfile.open(wheelhouse / "only_source-1.0.tar.gz", "w:gz") as out:
        out.add(source, "only_source-1.0")
    with pytest.raises(BuildFailed) as caught:
        VenvBackend(replace(settings, uv=uv)).comfy_env_build(replace(plan, dependencies=("only-source",)), silent)
    said = str(caught.value)
    assert "only" in said and "allow-source-builds" in said and not ran.exists()


@pytest.mark.parametrize("uv", ["", pytest.param("off", marks=pytest.mark.slow)])
def test_a_version_nobody_released_is_not_blamed_on_missing_wheels(settings, plan, uv):
    with pytest.raises(BuildFailed) as caught:
        VenvBackend(replace(settings, uv=uv)).comfy_env_build(replace(plan, dependencies=("demo-lib>=77",)), silent)
    assert "demo-lib" in "\n".join(caught.value.output) and "the full output is in" in caught.value.hint
    assert "wheel" not in caught.value.hint and "allow-source-builds" not in caught.value.hint


@pytest.mark.parametrize("uv", ["", "off"])
def test_a_package_for_other_pythons_is_named_with_the_python_at_plan_time(settings, plan, wheelhouse, uv):
    """Field case B28."""
    wheels.make(wheelhouse, "elsewhere", "4.2", python=">=3.90")
    with pytest.raises(BuildFailed) as caught:
        VenvBackend(replace(settings, uv=uv)).comfy_env_plan(replace(plan, dependencies=("elsewhere",)))
    said = str(caught.value)
    assert "elsewhere" in said and "3.90" in said and f"Python {HERE}." in said


def test_a_package_that_does_not_import_is_no_ready_environment(backend, plan, wheelhouse):
    wheels.make(wheelhouse, "bad_import", "1.0", "import a_library_nobody_has\n")
    with pytest.raises(BuildFailed, match="import bad_import: ModuleNotFoundError"):
        backend.comfy_env_build(replace(plan, dependencies=("bad-import",)), silent)
    assert status(backend, plan) is EnvStatus.MISSING


def test_an_import_that_crashes_the_interpreter_is_told_with_its_signal(backend, plan, wheelhouse):
    wheels.make(wheelhouse, "bad_native", "1.0", "import os\nos.abort()\n")
    with pytest.raises(BuildFailed, match=r"SIGABRT.*importing bad_native"):
        backend.comfy_env_build(replace(plan, dependencies=("bad-native",)), silent)


def test_a_package_that_merely_refuses_this_place_is_no_failure(backend, plan, wheelhouse):
    wheels.make(wheelhouse, "no_device", "1.0", "print('noise')\nraise ValueError('no device')\n")
    assert backend.comfy_env_build(replace(plan, dependencies=("no-device",)), silent).status is EnvStatus.READY


@pytest.mark.parametrize("line", ["-r ../x", "./x", "x @ file:///etc", "x @ https://u:hunter22@h/x.whl"])
def test_a_dangerous_line_never_reaches_an_installer(backend, plan, settings, line):
    for verb in (backend.comfy_env_plan, lambda bad: backend.comfy_env_build(bad, silent)):
        with pytest.raises(PlanError) as caught:
            verb(replace(plan, dependencies=(line,)))
        assert "hunter22" not in str(caught.value)
    assert not paths.env_folder(plan, settings).exists()


def test_an_indexs_password_is_in_no_log_stamp_error_or_step(backend, settings, plan, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter22secret@127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    steps = []
    with pytest.raises(BuildFailed) as caught:
        backend.comfy_env_build(replace(plan, indexes=("http://other:another22secret@127.0.0.1:9/simple",)), told(steps))
    log = paths.log_file(plan, settings).read_text()
    assert "127.0.0.1" in log
    for secret in ("hunter22secret", "another22secret"):
        assert secret not in log + str(caught.value) + "".join(step.text for step in steps)


def test_a_python_that_is_not_there_is_told_with_what_was_tried(settings, plan, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "python3.19"
    shim.write_text("#!/bin/sh\nexit 3\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    backend = VenvBackend(replace(settings, uv="off"))
    for verb in (backend.comfy_env_plan, lambda missing: backend.comfy_env_build(missing, silent)):
        with pytest.raises(PlanError) as caught:
            verb(replace(plan, python="3.19"))
        assert "no Python 3.19" in caught.value.message and f"{shim}: exited with status 3" in "\n".join(caught.value.output)


def test_an_environment_is_built_with_the_python_it_asks_for(backend, plan, interpreters):
    for version in interpreters:
        state = backend.comfy_env_build(replace(plan, key=f"on-{version}", python=version), silent)
        assert dict(state.versions)["python"].startswith(version)


def test_torch_of_the_host_is_asked_for_in_its_own_version(settings, plan, wheelhouse, monkeypatch):
    from comfy_env.envs import host_torch

    wheels.make(wheelhouse, "torch", "9.8.7")
    monkeypatch.setattr(host_torch, "host_version", lambda: "9.8.7")
    backend, wanted = VenvBackend(settings), replace(plan, torch="host")
    state = backend.comfy_env_build(wanted, silent)
    assert dict(state.versions)["torch"] == "9.8.7"
    monkeypatch.setattr(host_torch, "host_version", lambda: "9.8.8")
    assert status(backend, wanted) is EnvStatus.STALE


def test_a_host_build_of_torch_that_no_index_has_falls_back_to_its_release_and_says_so(settings, plan, wheelhouse, monkeypatch):
    from comfy_env.envs import host_torch

    wheels.make(wheelhouse, "torch", "9.8.7")
    monkeypatch.setattr(host_torch, "host_version", lambda: "9.8.7+cu999")
    steps = []
    state = VenvBackend(settings).comfy_env_build(replace(plan, torch="host"), told(steps))
    assert dict(state.versions)["torch"] == "9.8.7" and any("not to be had" in step.text for step in steps)


def test_a_host_without_torch_adds_none_and_says_so(settings, plan, monkeypatch):
    from comfy_env.envs import host_torch

    monkeypatch.setattr(host_torch, "host_version", lambda: "")
    assert any("no torch" in note for note in VenvBackend(settings).comfy_env_plan(replace(plan, torch="host")).notes)


def test_a_uv_that_does_not_run_is_named_with_its_setting(settings, plan):
    with pytest.raises(PlanError, match="COMFY_ENV_UV=/nowhere/uv"):
        VenvBackend(replace(settings, uv="/nowhere/uv")).comfy_env_build(plan, silent)


def test_the_command_that_mends_names_the_pack(backend, plan, tmp_path):
    folder = tmp_path / "my pack"
    packed = replace(plan, pack=PackId("x", folder=folder))
    assert backend.comfy_env_inspect(packed, False).fix == f"comfy-env build '{folder}'"


def test_a_cancelled_build_leaves_everything_as_it_was(backend, plan):
    def cancel(step):
        if "installing" in step.text:
            raise BuildCancelled("not now", env="demo")

    with pytest.raises(BuildCancelled):
        backend.comfy_env_build(plan, cancel)
    assert status(backend, plan) is EnvStatus.MISSING and not paths.env_folder(plan, backend.settings).exists()
    assert backend.comfy_env_build(plan, silent).status is EnvStatus.READY


def test_removing_takes_everything_that_was_made(backend, plan, settings, tmp_path):
    backend.comfy_env_build(plan, silent)
    assert backend.comfy_env_remove(plan).status is EnvStatus.MISSING
    left = [path for path in (tmp_path / "envs").rglob("*") if "demo" in path.name and "cache" not in path.parts]
    assert left == [] and not paths.log_file(plan, settings).exists()
    assert backend.comfy_env_remove(plan).status is EnvStatus.MISSING


def test_the_stamp_names_what_is_in_it(backend, plan):
    state = backend.comfy_env_build(plan, silent)
    stamp, _ = stamps.read(state.folder)
    assert (stamp.key, stamp.packages) == ("demo", {"demo-lib": "1.0", "demo-top": "1.0"})
    assert Path(stamp.folder) == Path(os.path.realpath(state.folder)) and stamp.base == sys.executable
