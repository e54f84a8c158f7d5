"""A worker whose arena has been used in both directions."""

import pytest

from tests.arena.kit import arena_worker


@pytest.fixture
def worker():
    with arena_worker() as started:
        yield started
