"""The arena between this Python and every other one that workers may have, with nothing installed there."""

from __future__ import annotations

import pickle

import pytest

from tests.arena.kit import arena_worker
from tests.transport.workers import interpreter


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_large_bytes_cross_through_shared_memory_both_ways(version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    content = bytearray(b"x" * 300_000)
    with arena_worker(python=python) as worker:
        before = worker.session.traffic["copied"]
        for _ in range(3):
            back = worker.value("arena_pack:as_buffer", pickle.PickleBuffer(content))
            assert bytes(back) == content
        assert worker.session.traffic["copied"] - before == 3 * len(content)
        assert (worker.session.traffic["spilled"], worker.session.tensors) == (0, 1)
        del back
        assert worker.value("arena_pack:total_of_bytes", pickle.PickleBuffer(content)) == len(content) * ord("x")
        assert (worker.session.traffic["lent"], worker.session.tensors) == (0, 0)
