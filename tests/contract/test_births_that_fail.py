"""Five ways not to be born give five different named errors (field cases B01, B10, B23)."""

import time

import pytest

from comfy_env import EnvPlan, errors


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_an_interpreter_that_exits_at_once_is_told_in_well_under_a_second(pool, tmp_path, load):
    plan = EnvPlan.existing(script(tmp_path / "dies", "echo no such library >&2\nexit 3\n"), "dies")
    started = time.monotonic()
    with pytest.raises(errors.DiedBeforeJoining) as caught:
        pool.call(plan, "jobs:pid")
    took = time.monotonic() - started
    assert took < load(1.0), f"took {took:.3f} s"
    assert "exited with status 3" in str(caught.value)
    assert "no such library" in "\n".join(caught.value.output)


def test_an_interpreter_that_hangs_is_ended_at_the_birth_limit(pool, tmp_path):
    plan = EnvPlan.existing(script(tmp_path / "hangs", "echo thinking\nexec sleep 600\n"), "hangs", limits={"birth": 0.5})
    with pytest.raises(errors.BirthSilent) as caught:
        pool.call(plan, "jobs:pid")
    assert "thinking" in "\n".join(caught.value.output)
    assert caught.value.pid


def test_an_interpreter_that_is_missing_is_named(pool, tmp_path):
    plan = EnvPlan.existing(tmp_path / "nowhere" / "python", "missing")
    with pytest.raises(errors.InterpreterMissing, match="nowhere"):
        pool.call(plan, "jobs:pid")


def test_an_environment_that_is_not_built_names_the_command(pool):
    plan = EnvPlan(key="unbuilt", dependencies=("six",))
    with pytest.raises(errors.EnvNotBuilt) as caught:
        pool.call(plan, "jobs:pid")
    assert "comfy-env build" in caught.value.hint


def test_an_environment_that_was_moved_is_told_so(pool, settings, tmp_path):
    plan = EnvPlan(key="moved")
    state = pool.build(plan)
    other = EnvPlan(key="elsewhere")
    target = pool.inspect(other, probe=False).folder
    state.folder.rename(target)
    with pytest.raises(errors.EnvMoved):
        pool.call(other, "jobs:pid")


def test_the_call_after_a_failed_birth_tries_again(pool, tmp_path):
    plan = EnvPlan.existing(script(tmp_path / "dies", "exit 3\n"), "dies")
    for generation in (1, 2):
        with pytest.raises(errors.DiedBeforeJoining) as caught:
            pool.call(plan, "jobs:pid")
        assert caught.value.generation == generation
