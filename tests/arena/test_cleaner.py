"""A privately mapped range is cleaned if it was written to, and only then; both ways of looking agree."""

from __future__ import annotations

import mmap
import os
import resource

import pytest

from comfy_env.worker.wire import cleaner as cleaners
from comfy_env.worker.wire import segments
from comfy_env.worker.wire.cleaner import Cleaner

PAGE = mmap.PAGESIZE
SIZE = 64 * PAGE


@pytest.fixture
def memory():
    fd = segments.create(SIZE)
    shared = segments.map_shared(fd, SIZE)
    shared[:] = b"a" * SIZE
    private = segments.map_private(fd, SIZE)
    assert sum(private[::PAGE]) == 64 * ord("a")   # every page is there
    yield private
    private.close()
    shared.close()
    os.close(fd)


@pytest.fixture(params=["scan", "read", "blind"])
def cleaner(request, monkeypatch):
    """A kernel with the scan, an older one, and a process without page tables to look at."""
    made = Cleaner()
    if request.param != "scan":
        made._scans = False
    if request.param == "blind":
        monkeypatch.setattr(cleaners, "_read", _refuse)
    yield made
    made.close()


def _refuse(*args):
    raise OSError(13, "Permission denied")


@pytest.mark.parametrize("where", [0, 17 * PAGE + 5, SIZE - 1])
def test_what_was_written_follows_the_shared_memory_again(memory, cleaner, where):
    memory[where] = ord("b")
    cleaner.clean(memory, segments.address(memory), 0, SIZE)
    assert memory[:] == b"a" * SIZE


def test_what_was_written_outside_the_range_stays(memory, cleaner):
    memory[0] = memory[20 * PAGE] = ord("b")
    cleaner.clean(memory, segments.address(memory), 10 * PAGE, 20 * PAGE)
    assert (memory[0], memory[20 * PAGE]) == (ord("b"), ord("a"))


def test_an_untouched_range_keeps_its_pages(memory):
    cleaner = Cleaner()
    base = segments.address(memory)
    cleaner.clean(memory, base, 0, SIZE)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    assert sum(memory[::PAGE]) == 64 * ord("a")
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 8
    cleaner.close()


def test_pages_that_were_never_looked_at_count_as_clean(cleaner):
    fd = segments.create(SIZE)
    private = segments.map_private(fd, SIZE)
    assert not Cleaner._is_dirty(cleaner, segments.address(private), SIZE) or cleaners._read is _refuse
    private.close()
    os.close(fd)
