"""The one thread that sees deaths and limits goes on, whatever happens around it."""

import threading

import pytest

from comfy_env import EnvPlan, errors
from comfy_env.hooks import Registry
from comfy_env.pool import WorkerPool
from comfy_env.testing.audit import wait_until
from comfy_env.testing.scripted import Dies, ScriptedBackend
from comfy_env.values import ExitStatus

PLAN = EnvPlan(key="watched", backend="scripted")


def dies():
    raise Dies(ExitStatus(code=5))


@pytest.fixture
def pool(settings):
    registry = Registry(find=lambda group: ())
    registry.register("scripted", ScriptedBackend({"m:double": lambda n: 2 * n, "m:die": dies}))
    with WorkerPool(settings, registry=registry) as pool:
        yield pool


def test_an_error_in_one_look_is_logged_and_the_next_death_is_seen(pool, caplog):
    assert pool.call(PLAN, "m:double", 1) == 2
    watcher = pool._house.watcher
    broken = threading.Event()
    real = watcher._limits

    def limits():
        watcher._limits = real
        broken.set()
        raise ZeroDivisionError("a defect")

    watcher._limits = limits
    watcher.wake_by(float("-inf"))
    assert broken.wait(10)
    wait_until(lambda: "the watcher goes on" in caplog.text)
    with pytest.raises(errors.WorkerCrashed, match="status 5"):
        pool.call(PLAN, "m:die")
    assert pool.call(PLAN, "m:double", 2) == 4


def test_a_pool_that_never_called_closes_without_ever_having_opened_anything(settings):
    pool = WorkerPool(settings)
    pool.tick()
    pool.close()
    assert pool._house.watcher._thread is None
