"""A backend that wants the interpreter's end in one of its verbs fails that verb, by name and at once."""

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.testing.scripted import ScriptedBackend
from tests.pools import pool_over

PLAN = EnvPlan(key="leaving", backend="scripted")


class Own(BaseException):
    """No Exception."""


@pytest.fixture
def backend():
    return ScriptedBackend({"m:double": lambda n: 2 * n})


@pytest.fixture
def pool(settings, backend):
    with pool_over(settings, backend) as pool:
        yield pool


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Own])
@pytest.mark.parametrize("verb", ["spawn", "transport", "verify"])
def test_a_birth_whose_verb_wants_to_exit_fails_by_backend_verb_and_exception(pool, backend, verb, kind):
    backend.faults[verb] = kind("enough")
    with pytest.raises(errors.ComfyEnvError, match=f"backend 'scripted': {verb} raised {kind.__name__}: enough"):
        pool.call(PLAN, "m:double", 1)
    backend.faults.clear()
    assert pool.call(PLAN, "m:double", 1) == 2


@pytest.mark.parametrize("kind", [SystemExit, Own])
def test_a_kill_that_wants_to_exit_is_told_in_the_story_by_backend_verb_and_exception(pool, backend, kind):
    pool.call(PLAN, "m:double", 1)
    backend.faults["kill"] = kind("enough")
    pool.kill(PLAN)
    backend.faults.clear()
    pool.kill(PLAN)
    assert any(f"backend 'scripted': kill raised {kind.__name__}: enough" in line for line in pool.story(PLAN))


def test_a_release_that_wants_to_exit_is_told_to_its_asker(pool, backend):
    pool.call(PLAN, "m:double", 1)
    backend.faults["release"] = SystemExit("enough")
    with pytest.raises(errors.BackendError, match="backend 'scripted': release raised SystemExit: enough"):
        pool.release(PLAN)
    backend.faults.clear()
    assert pool.call(PLAN, "m:double", 1) == 2
