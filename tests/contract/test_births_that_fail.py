"""Five ways not to be born give five different named errors (field cases B01, B10, B23)."""

import sys
import time

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.pool import births


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


def test_an_interpreter_that_cannot_be_executed_is_named(pool, tmp_path):
    path = script(tmp_path / "plain text", "exit 0\n")
    path.chmod(0o644)
    with pytest.raises(errors.InterpreterMissing, match="plain text cannot be executed") as caught:
        pool.call(EnvPlan.existing(path, "unexecutable"), "jobs:pid")
    assert caught.value.hint == "name another interpreter in the plan"


def test_an_interpreter_that_is_a_folder_is_named(pool, tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    with pytest.raises(errors.InterpreterMissing, match="a folder is a folder and no interpreter"):
        pool.call(EnvPlan.existing(folder, "folder"), "jobs:pid")


PRETENDS = '''
shift 2
exec {python} -I -u -c "import sys, runpy
sys.version_info = (3, 8, 18, 'final', 0); sys.version = '3.8.18 (pretended)'
del sys.argv[0]
runpy.run_path(sys.argv[0] + '/__main__.py', run_name='__main__')" "$@"
'''


@pytest.mark.parametrize(("text", "told"), [
    (PRETENDS.format(python=sys.executable), "workers need Python 3.9 or newer, .* is Python 3.8.18"),
    ("echo 'Unknown option: -I' >&2\nexit 2\n", "workers need Python 3.9 or newer, .*/old is one that does not know"),
], ids=["3.8", "2.7"])
def test_an_interpreter_too_old_for_a_worker_is_named_and_shows_no_traceback(pool, tmp_path, text, told):
    with pytest.raises(errors.DiedBeforeJoining, match=told) as caught:
        pool.call(EnvPlan.existing(script(tmp_path / "old", text), "old"), "jobs:pid")
    assert "Traceback" not in str(caught.value)
    assert caught.value.hint == "name another interpreter in the plan"


def test_a_hint_that_is_a_sentence_is_not_told_to_be_run(pool, tmp_path):
    with pytest.raises(errors.InterpreterMissing) as caught:
        pool.call(EnvPlan.existing(tmp_path / "nowhere", "missing"), "jobs:pid")
    assert "run:" not in str(caught.value)
    with pytest.raises(errors.EnvNotBuilt) as told:
        pool.call(EnvPlan(key="unbuilt", dependencies=("six",)), "jobs:pid")
    assert not told.value.hint.startswith("run: WorkerPool")


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


def test_lanes_whose_conversation_cannot_begin_are_closed_and_the_next_worker_serves(pool, plan, monkeypatch):
    joined, begin = [], births.session_of

    def torn(lanes, process):
        joined.append(lanes)
        if len(joined) == 1:
            raise OSError("no memory to wait with")
        return begin(lanes, process)

    monkeypatch.setattr(births, "session_of", torn)
    with pytest.raises(errors.ComfyEnvError, match="no memory to wait with"):
        pool.call(plan, "jobs:pid")
    assert [lane.sock.fileno() for lane in (joined[0].main, joined[0].side)] == [-1, -1]
    assert pool.call(plan, "jobs:add", 1, 1) == 2
