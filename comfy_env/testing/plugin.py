"""A pytest plugin for authors of backends and node packs: `isolated_pool`, `nothing_left`.

Installed with comfy_env it is loaded into every test run of that environment, so importing it costs next to nothing:
the pool is only loaded when a fixture asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from comfy_env.testing.audit import Audit

if TYPE_CHECKING:
    from comfy_env.pool import WorkerPool


@pytest.fixture
def nothing_left() -> Iterator[Audit]:
    """Fail the test if it leaves a thread, a descriptor or a child process behind."""
    audit = Audit()
    yield audit
    left = audit.settle()
    if left:
        pytest.fail("the test left behind:\n" + "\n".join(f"  {line}" for line in left), pytrace=False)


@pytest.fixture
def isolated_pool(nothing_left: Audit) -> Iterator[WorkerPool]:
    """A pool of the test's own: `isolated_pool.call(plan, "module:function", …)`; its workers end with the test."""
    with import_module("comfy_env.pool").WorkerPool() as pool:
        yield pool
