"""A pack is who it says it is, wherever it lies (field cases B08, B23)."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfy_env import EnvPlan
from comfy_env.packs.identity import key
from comfy_env.values import PackId

BARE = "[tool.comfy-env]\n"
REMOTE = '[core]\n\tbare = false\n[remote "origin"]\n\turl = {}\n\tfetch = +refs/heads/*\n[branch "main"]\n\tremote = origin\n'


def only(folder):
    (plan,) = EnvPlan.from_pack(folder)
    return plan


@pytest.mark.parametrize("text", [BARE, '[project]\nname = "same"\n' + BARE])
def test_two_packs_in_equally_named_folders_are_two(pack, text):
    one, other = only(pack(text, "a/ComfyUI-TRELLIS2")), only(pack(text, "b/ComfyUI-TRELLIS2"))
    assert one.key != other.key and one.pack.id != other.pack.id


@pytest.mark.parametrize("text", [BARE, '[project]\nname = "n"\n' + BARE])
def test_one_pack_reached_by_two_paths_is_one(pack, tmp_path, text):
    real = pack(text, "real")
    (tmp_path / "link").symlink_to(real)
    assert only(real) == only(tmp_path / "link") == only(tmp_path / "link" / "pyproject.toml")


def test_a_published_pack_keeps_its_key_when_it_moves(pack, tmp_path):
    folder = pack('[project]\nname = "Nice_Pack"\n[tool.comfy]\nPublisherId = "me"\n' + BARE)
    before = only(folder)
    shutil.move(folder, tmp_path / "elsewhere")
    after = only(tmp_path / "elsewhere")
    assert before.pack.id == "me/nice-pack" and after.key == before.key


def test_packs_of_two_publishers_with_one_name_are_two(pack):
    text = '[project]\nname = "n"\n[tool.comfy]\nPublisherId = "{}"\n' + BARE
    assert only(pack(text.format("a"), "x")).key != only(pack(text.format("b"), "y")).key


@pytest.mark.parametrize(
    "url", ["git@github.com:Owner/Repo.git", "https://github.com/owner/repo", "https://u:p4ssword@github.com/owner/repo.git"]
)
def test_a_clone_is_known_by_where_it_came_from(pack, url):
    folder = pack(BARE, f"clone-{abs(hash(url))}")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(REMOTE.format(url))
    plan = only(folder)
    assert plan.pack.id == "github.com/owner/repo" and "p4ssword" not in repr(plan)


def test_identity_carries_version_and_repository(pack):
    plan = only(pack('[project]\nname = "n"\nversion = "1.2"\n[project.urls]\nRepository = "https://github.com/o/n"\n' + BARE))
    assert (plan.pack.version, plan.pack.url, plan.pack.id) == ("1.2", "https://github.com/o/n", "github.com/o/n#n")


def test_a_clone_of_a_folder_on_this_machine_is_known_by_its_own_place(pack):
    folders = [pack(BARE, name) for name in ("a/p", "b/p")]
    for folder in folders:
        (folder / ".git").mkdir()
        (folder / ".git" / "config").write_text(REMOTE.format("/srv/git/p"))
    assert only(folders[0]).key != only(folders[1]).key


@given(st.text(max_size=60), st.text(max_size=30))
def test_every_key_is_short_and_safe_as_a_file_name(pack_id, name):
    made = key(PackId(pack_id), name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,79}", made) and os.path.basename(made) == made
