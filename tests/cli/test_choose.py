"""Which environments a command is about."""

from __future__ import annotations

from argparse import Namespace

import pytest

from comfy_env.cli.choose import chosen, plans_in, refusal
from comfy_env.cli.exits import NotThere
from comfy_env.errors import PlanError


def keys(*folders, env=()):
    return [plan.key for plan in chosen(Namespace(packs=list(folders), env=list(env)))]


def test_a_packs_folder_gives_its_environments(pack):
    assert len(plans_in(pack("one"))) == 1


def test_a_folder_of_packs_gives_those_of_every_pack(pack):
    folder = pack("one").parent
    pack("two")
    assert len(keys(folder)) == 2


def test_a_folder_named_twice_by_whatever_path_is_one_environment(pack, tmp_path, monkeypatch):
    folder = pack("one")
    (tmp_path / "link").symlink_to(folder)
    pack("two")
    monkeypatch.chdir(tmp_path)
    first, second = keys(folder.parent)
    assert keys(folder, folder, tmp_path / "link", "packs/one/../one") == [first]
    assert keys(folder.parent / "two", folder.parent, folder) == [second, first]


def test_a_pack_without_a_table_of_ours_is_passed_over(pack):
    other = pack("two", header="[tool.other]")
    pack("one")
    assert plans_in(other) == []
    assert len(keys(other.parent)) == 1


def test_nothing_declared_is_said_with_the_next_step(tmp_path):
    with pytest.raises(NotThere, match=r"no pack that declares") as refused:
        keys(tmp_path)
    assert "[tool.comfy-env]" in refused.value.hint


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotThere, match="gone is not a folder"):
        keys(tmp_path / "gone")


def test_patterns_pick_environments(pack):
    folder = pack("one").parent
    pack("two")
    all_keys = keys(folder)
    assert keys(folder, env=[all_keys[0]]) == [all_keys[0]]
    assert keys(folder, env=["*"]) == all_keys


def test_an_unknown_environment_is_answered_with_the_near_one(pack):
    folder = pack("one")
    (known,) = keys(folder)
    with pytest.raises(NotThere, match=known) as refused:
        keys(folder, env=[known[:-1]])
    assert refused.value.hint == f"did you mean {known!r}?"


def test_a_wrong_declaration_is_told_with_file_and_line(pack):
    with pytest.raises(PlanError, match=r"pyproject\.toml:6") as refused:
        plans_in(pack("one", "pithon = '3.11'"))
    assert "python" in str(refused.value)


def test_a_refusal_is_one_line():
    assert refusal(PlanError("wrong\nand more", hint="mend it")) == "wrong"
