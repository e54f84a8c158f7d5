"""What a caller's hook raises while an environment is built is the caller's, not the backend's."""

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.hooks import hookimpl
from comfy_env.testing.scripted import ScriptedBackend
from comfy_env.values import BuildStep, EnvState, EnvStatus
from tests.pools import pool_over

PLAN = EnvPlan(key="built", backend="builds")


class Builds(ScriptedBackend):
    def __init__(self, own=None):
        super().__init__({})
        self.own = own

    @hookimpl
    def comfy_env_build(self, plan, progress):
        progress(BuildStep(plan.key, "begun"))
        if self.own:
            raise self.own
        return EnvState(plan.key, EnvStatus.READY)


def pool_of(settings, backend):
    return pool_over(settings, backend, "builds")


@pytest.mark.parametrize("kind", [ValueError, StopIteration, errors.LaneLost, errors.BackendError, KeyboardInterrupt])
def test_what_a_build_hook_raises_arrives_as_it_is(settings, kind):
    mine = kind("the hook's own")

    def hook(step):
        raise mine

    with pool_of(settings, Builds()) as pool, pytest.raises(kind) as caught:
        pool.build(PLAN, hook)
    assert caught.value is mine


def test_what_a_backend_raises_in_a_build_stays_the_backends(settings):
    with pool_of(settings, Builds(own=ValueError("its own"))) as pool, pytest.raises(errors.BackendError, match="build raised ValueError"):
        pool.build(PLAN, lambda step: None)
