"""Each verb of a birth has a limit, and a backend that hangs in one is left behind."""

import threading
import time

import pytest

from comfy_env import errors


@pytest.fixture
def hang(pool):
    """Make one verb of the venv backend wait until the test is over."""
    relay = pool.registry.backend("venv")
    over = threading.Event()
    undo = []

    def make(verb):
        real = getattr(relay, verb)
        undo.append((verb, real))

        def slow(*args):
            over.wait(60)
            return real(*args)

        setattr(relay, verb, slow)
        return over

    yield make
    over.set()
    for verb, real in undo:
        setattr(relay, verb, real)


@pytest.mark.parametrize(("verb", "limit", "error"), [
    ("spawn", "spawn", errors.SpawnFailed),
    ("transport", "birth", errors.BirthSilent),
    ("verify", "verify", errors.TransportRefused),
])
def test_a_verb_that_hangs_fails_the_call_at_its_limit(pool, make_plan, hang, load, verb, limit, error):
    plan = make_plan("hangs", limits={limit: 0.4})
    hang(verb)
    started = time.monotonic()
    with pytest.raises(error):
        pool.call(plan, "jobs:pid")
    assert time.monotonic() - started < load(3.0)


def test_a_process_that_arrives_after_it_was_given_up_is_ended(pool, make_plan, hang, eventually):
    plan = make_plan("late", limits={"spawn": 0.3})
    over = hang("spawn")
    with pytest.raises(errors.SpawnFailed):
        pool.call(plan, "jobs:pid")
    over.set()
    assert pool.call(plan, "jobs:add", 1, 1) == 2
    assert pool.record(plan).generation == 2
