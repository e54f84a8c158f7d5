"""A zygote of an environment that was built for real from the package index, by whichever installer is there."""

import os

import pytest

from comfy_env import EnvPlan
from comfy_env.envs import preloads
from comfy_env.process import procs
from comfy_env.process import zygote as zygote_process

CODE = __file__.rsplit("real", 1)[0] + "code"

pytestmark = [pytest.mark.real, pytest.mark.skipif(not zygote_process.possible(), reason="this system lets no host have workers forked")]


def parent(pool, plan):
    return procs.row(pool.call(plan, "jobs:pid")).parent


def test_what_its_workers_import_is_learned_kept_and_forked_and_a_rebuild_drops_it(pool, settings, eventually):
    plan = EnvPlan("built", root=CODE, python=">=3.10", dependencies=("numpy", "pillow"), limits={"zygote": 2, "spawn": 60})
    pool.build(plan)
    version, _ = pool.call(plan, "jobs:version_of", "numpy")
    assert parent(pool, plan) == os.getpid()
    assert {"numpy", "numpy.random"} & set(preloads.read(preloads.folder_of(plan, settings)))
    pool.kill(plan)
    keeper = pool.seats()[0].keeper
    assert parent(pool, plan) == keeper.pid != os.getpid() and "numpy" in pool.call(plan, "jobs:modules")
    assert pool.call(plan, "jobs:version_of", "numpy")[0] == version
    zygote, other = keeper.pid, EnvPlan("built", root=CODE, python=">=3.10", dependencies=("numpy", "pillow", "six"), limits=plan.limits)
    pool.kill(plan)
    pool.build(other)
    file = pool.call(other, "jobs:version_of", "six")[1]
    assert file.startswith(str(pool.inspect(other, probe=False).interpreter.parents[1]))
    eventually(lambda: procs.row(zygote) is None, 30, "the old environment's zygote is collected")
    assert parent(pool, other) in (keeper.pid, os.getpid()) and "numpy" in preloads.read(preloads.folder_of(other, settings))
