"""What a worker tells of heavy imports: each module once, with the answer of the call that imported it."""

from __future__ import annotations

import sys
import types

from comfy_env.transport.answers import Answer
from comfy_env.worker import heavy
from comfy_env.worker.wire.kinds import Kind


def test_each_heavy_module_is_told_once(monkeypatch):
    for name in heavy.MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    seen = heavy.Seen()
    assert seen.news() == [] and seen.news() == []
    monkeypatch.setitem(sys.modules, "einops", types.ModuleType("einops"))
    monkeypatch.setitem(sys.modules, "nothing_heavy", types.ModuleType("nothing_heavy"))
    assert seen.news() == ["einops"] and seen.news() == []


def test_a_submodule_comes_after_its_package():
    for name in heavy.MODULES:
        package = name.rpartition(".")[0]
        assert not package or heavy.MODULES.index(package) < heavy.MODULES.index(name)


def test_the_host_believes_names_only():
    for kind in (Kind.REPLY, Kind.RAISED, Kind.INTERRUPTED, Kind.REFUSED):
        assert Answer.read(kind, {"imported": ["torch", 5, None]}).imported == ("torch",)
        assert Answer.read(kind, {"imported": "torch"}).imported == () == Answer.read(kind, {}).imported
