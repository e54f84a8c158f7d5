"""What a worker's allocator is told of huge pages, and who may say no."""

import os

import pytest

from comfy_env.process import variables


@pytest.mark.parametrize(("limits", "told"), [({}, True), ({"huge_pages": 0}, False)])
def test_a_workers_allocator_asks_for_huge_pages_unless_its_environment_says_no(pool, make_plan, monkeypatch, limits, told):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(variables, "_libc", lambda: "glibc 2.36")   # an older one only overlooks it
    found = pool.call(make_plan("huge", limits=limits), "os:getenv", "GLIBC_TUNABLES")
    assert found == ("glibc.malloc.hugetlb=1" if told else None)
    assert "GLIBC_TUNABLES" not in os.environ
