"""`LocalBackend`: a backend that only says what differs has the whole contract."""

import sys
from dataclasses import replace

import pytest

from comfy_env.backends.local import LocalBackend
from comfy_env.errors import BackendError
from comfy_env.hooks import Registry, Relay, hookimpl
from comfy_env.pool import WorkerPool
from comfy_env.testing.stage import GUEST
from comfy_env.values import EnvPlan, Killed

PLAN = EnvPlan.existing(sys.executable, key="local", backend="local", import_roots=(GUEST,))


def pool_of(backend):
    registry = Registry(find=lambda group: ())
    registry.register("local", backend)
    return WorkerPool(registry=registry)


def test_a_backend_that_changes_what_is_started_overrides_one_method():
    class Marked(LocalBackend):
        def launch_for(self, launch):
            return replace(launch, variables={**launch.variables, "MARK": "mine"})

    with pool_of(Marked()) as pool:
        assert pool.call(PLAN, "contract_probe:variable", "MARK") == "mine"


def test_a_verb_can_be_overridden_and_the_others_stay():
    class Counting(LocalBackend):
        kills = 0

        @hookimpl
        def comfy_env_kill(self, process, reason, replaced):
            self.kills += 1
            return super().comfy_env_kill(process, reason, replaced)

    backend = Counting()
    with pool_of(backend) as pool:
        assert pool.call(PLAN, "contract_probe:add", 1, 1) == 2
        assert pool.kill(PLAN)
    assert backend.kills >= 1


def test_an_overridden_verb_without_its_marker_is_refused():
    class Forgot(LocalBackend):
        def comfy_env_kill(self, process, reason, replaced):
            return Killed()

    with pytest.raises(BackendError, match="comfy_env_kill lacks the @hookimpl marker"):
        Relay("local", Forgot())


def test_it_makes_no_environments():
    assert not Relay("local", LocalBackend()).provisions
