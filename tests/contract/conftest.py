"""The contract's stage over every backend that claims what a rule needs; pools and plans over real workers."""

import os
import re
import time
from pathlib import Path

import pytest

from comfy_env.settings import Settings
from comfy_env.testing.clock import MovableClock
from tests.contract.worlds import WORLDS
from tests.pools import make_plan, plan, pool, pythons

__all__ = ["make_plan", "plan", "pool", "pythons"]

STAGES = ("stage", "timed")
SLOW = {"pixi": pytest.mark.slow, "venv-zygote": pytest.mark.slow}
"""Their workers' lives are the same code's as the venv's but for the start: the quick run leaves them out."""


def pytest_generate_tests(metafunc):
    """Run a test that asks for a stage once for each backend that claims what it needs."""
    if not set(STAGES) & set(metafunc.fixturenames):
        return
    wanted = set(getattr(metafunc.function, "contract_needs", ()))
    names = getattr(metafunc.function, "contract_over", tuple(WORLDS))
    claiming = [name for name in names if wanted <= WORLDS[name].capabilities]
    metafunc.parametrize("world", [pytest.param(name, marks=SLOW.get(name, ())) for name in claiming], indirect=True)


@pytest.fixture
def world(request):
    return request.param


@pytest.fixture(scope="session")
def contract_place(tmp_path_factory):
    """Where an environment that all tests share is laid out once."""
    return tmp_path_factory.mktemp("contract")


@pytest.fixture
def settings(tmp_path):
    return Settings(
        runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs", birth=20.0, crash_limit=100
    )


def _play(world, settings, tmp_path, contract_place, clock):
    folder = tmp_path / "stage"
    folder.mkdir()
    backend, plan = WORLDS[world].make(settings, contract_place)
    return WORLDS[world].play(backend, plan, folder, settings, clock)


@pytest.fixture
def stage(world, settings, tmp_path, contract_place):
    """A pool over one backend, on lived time."""
    play = _play(world, settings, tmp_path, contract_place, None)
    yield play
    play.close()


@pytest.fixture
def timed(world, settings, tmp_path, contract_place):
    """The same on a clock that stands still until the test moves it."""
    play = _play(world, settings, tmp_path, contract_place, MovableClock())
    yield play
    play.close()


@pytest.fixture
def load():
    """Triple a promised bound where other work keeps the machine's processors busy, before the test or during it."""
    began, waited = time.monotonic(), _waited()

    def bound(seconds):
        delayed = _waited() - waited > 0.05 * (time.monotonic() - began)
        return seconds * 3 if delayed or _is_busy() else seconds

    return bound


def _is_busy():
    """Tell whether somebody waited for a processor lately: by the load, or by the kernel's own account where it keeps one."""
    return os.getloadavg()[0] > 0.7 * (os.cpu_count() or 1) or _pressure("avg10") > 10


def _waited():
    """Return the seconds for which somebody waited for a processor since the machine started, 0 where nobody counts them."""
    return _pressure("total") / 1e6


def _pressure(figure):
    path = Path("/proc/pressure/cpu")
    told = re.search(rf"some .*{figure}=([0-9.]+)", path.read_text()) if path.is_file() else None
    return 0.0 if told is None else float(told[1])
