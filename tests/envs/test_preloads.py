"""The list of what workers were seen to import: it grows, outlives a rebuild's tidying, and is never a reason to fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from comfy_env.envs import preloads, stamps, swap
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan
from tests.made_envs import BUILD


def stamped(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = stamps.Stamp("a", "plan", str(folder), BUILD, "bin/python", "3.11", "", "", "now")
    stamps.write(folder, stamp)
    return folder


def test_what_was_seen_is_added_to_what_is_kept(tmp_path):
    assert preloads.read(tmp_path) == ()
    assert preloads.add(tmp_path, ["torch", "numpy"]) == ("numpy", "torch") == preloads.read(tmp_path)
    assert preloads.add(tmp_path, ["PIL"]) == ("PIL", "numpy", "torch") == preloads.read(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [stamps.PRELOADS]


def test_a_list_that_cannot_be_read_is_none_and_one_that_cannot_be_written_costs_nothing(tmp_path, caplog):
    (tmp_path / stamps.PRELOADS).write_text("{")
    assert preloads.read(tmp_path) == () and "cannot be read" in caplog.text
    (tmp_path / stamps.PRELOADS).write_text(json.dumps({"torch": 1}))
    assert preloads.read(tmp_path) == ()
    assert preloads.add(tmp_path / "gone", ["torch"]) == ("torch",) and "cannot be written" in caplog.text


def test_the_list_stays_when_old_builds_are_cleared_away(tmp_path):
    folder = stamped(tmp_path / "env")
    preloads.add(folder, ["torch"])
    (folder / "old-build").mkdir()
    swap.clear(folder)
    assert preloads.read(folder) == ("torch",) and not (folder / "old-build").exists()


def test_only_what_was_built_here_has_a_list(tmp_path):
    settings, plan = Settings(envs_folder=tmp_path), EnvPlan("a")
    assert preloads.folder_of(plan, settings) is None
    assert preloads.folder_of(plan, settings) is None and stamped(tmp_path / "a") == preloads.folder_of(plan, settings)
    assert preloads.folder_of(EnvPlan.existing(sys.executable, "a"), settings) is None


def test_a_module_that_a_pack_has_itself_is_left_out(tmp_path):
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").touch()
    (tmp_path / "torch").mkdir()   # of data: never imported before a module of that name
    (tmp_path / "einops.py").touch()
    assert preloads.not_shadowed(("PIL", "PIL.Image", "einops", "torch"), [tmp_path]) == ("torch",)


@pytest.mark.parametrize(("name", "counts"), [
    ("einops.py", True), ("einops.pyc", True), ("einops.cpython-311-x86_64-linux-gnu.so", True), ("einops.abi3.so", True),
    ("einops.pyd", True), ("einops.txt", False), ("einops", False), ("einops-1.0.dist-info", False), ("my_einops.py", False),
])
def test_a_module_counts_in_every_form_that_python_imports(tmp_path, name, counts):
    (tmp_path / name).touch()
    assert preloads.shadowed(["einops", "torch"], [tmp_path / "gone", tmp_path]) == (("einops",) if counts else ())
