"""The stamp names the build in use; what nobody names or runs is removed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from comfy_env.envs import stamps, swap
from comfy_env.values import EnvPlan


def stamp(folder, build, **more):
    return stamps.Stamp(
        key="k",
        plan="p",
        folder=str(folder),
        build=build,
        interpreter="bin/python",
        python="3.11.7",
        base="/b",
        tool="t",
        built="now",
        **more,
    )


def build(folder):
    place = swap.new_build(folder)
    place.mkdir()
    return place


def test_adopting_a_build_replaces_the_old_one_in_one_step(tmp_path):
    old, new = build(tmp_path), build(tmp_path)
    swap.adopt(tmp_path, stamp(tmp_path, old.name))
    swap.adopt(tmp_path, stamp(tmp_path, new.name, packages={"six": "1"}))
    found, problem = stamps.read(tmp_path)
    assert (found.build, found.packages, problem) == (new.name, {"six": "1"}, "")
    swap.clear(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {stamps.FILE, new.name}


def test_leftovers_are_removed_where_nothing_was_ever_built(tmp_path):
    (build(tmp_path) / "half").write_text("x")
    swap.clear(tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_replaced_build_stays_while_a_process_runs_it(tmp_path, eventually):
    old, new = build(tmp_path), build(tmp_path)
    program = old / "bin" / "python"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    swap.adopt(tmp_path, stamp(tmp_path, new.name))
    with subprocess.Popen([program, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as worker:
        eventually(lambda: swap.users_of(old) == (worker.pid,))
        swap.clear(tmp_path)
        assert old.exists()
        worker.stdin.close()
    swap.clear(tmp_path)
    assert not old.exists() and new.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99}', '{"schema": 1}'])
def test_a_damaged_stamp_is_told_and_nothing_is_removed(tmp_path, text):
    (tmp_path / stamps.FILE).write_text(text)
    kept = build(tmp_path)
    found, problem = stamps.read(tmp_path)
    swap.clear(tmp_path)
    assert found is None and str(tmp_path) in problem and kept.exists()


def test_a_stamp_holds_no_secret(tmp_path):
    plan = EnvPlan(key="k", indexes=("https://u:hunter22@h/",), secrets=("HF_TOKEN",), variables={"A": "hunter22"})
    swap.adopt(tmp_path, replace(stamp(tmp_path, "b"), plan=stamps.plan_hash(plan)))
    assert "hunter22" not in json.dumps(json.loads((tmp_path / stamps.FILE).read_text()))


def test_what_is_built_decides_the_hash_and_nothing_else():
    base = EnvPlan(key="k", dependencies=("a", "b"), indexes=("https://u:one@h/",))
    same = [
        EnvPlan(key="k", dependencies=("b", "a"), indexes=("https://u:two@h/",), nodes=("x",), limits={"birth": 5}, variables={"A": "1"}),
        EnvPlan(key="k", dependencies=("a", "b"), indexes=("https://u:one@h/",), python="3.9"),
    ]
    other = [
        EnvPlan(key="k", dependencies=("a",)),
        EnvPlan(key="k", dependencies=("a", "b"), torch="host"),
    ]
    assert {stamps.plan_hash(plan) for plan in [base, *same]} == {stamps.plan_hash(base)}
    assert stamps.plan_hash(base) not in {stamps.plan_hash(plan) for plan in other}
    assert stamps.plan_hash(other[1], "2.1") != stamps.plan_hash(other[1], "2.2")
