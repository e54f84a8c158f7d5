"""Sources under watch: a change counts when it has settled and the environment's interpreter can compile it."""

import os
import sys

import pytest

from comfy_env.envs import source_watch
from comfy_env.envs.source_watch import Change, SourceWatch, fault_of


@pytest.fixture
def pack(tmp_path):
    (tmp_path / "nodes.py").write_text("A = 1\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "more.py").write_text("B = 1\n")
    return tmp_path


def test_sources_that_stay_as_they_are_tell_nothing(pack):
    watch = SourceWatch([pack])
    assert [watch.poll() for _ in range(3)] == [None] * 3


@pytest.mark.parametrize("change", ["edit", "add", "remove", "replace"])
def test_a_change_is_told_when_it_is_seen_and_again_when_it_has_settled(pack, change):
    watch = SourceWatch([pack])
    path = pack / "inner" / ("new.py" if change == "add" else "more.py")
    if change == "remove":
        path.unlink()
    elif change == "replace":
        (pack / "inner" / "beside").write_text("B = 1\n")
        os.utime(pack / "inner" / "beside", ns=(path.stat().st_mtime_ns,) * 2)
        os.replace(pack / "inner" / "beside", path)
    else:
        path.write_text("B = 22\n")
    assert watch.poll() == Change(settled=False)
    assert watch.poll() == Change(True, (str(path),))
    assert watch.poll() is None


def test_a_file_that_is_still_being_written_has_not_settled(pack):
    watch = SourceWatch([pack])
    for size in range(1, 5):
        (pack / "nodes.py").write_text("#" * size)
        assert watch.poll() == Change(settled=False)
    assert watch.poll() == Change(True, (str(pack / "nodes.py"),))


@pytest.mark.parametrize("name", [
    "__pycache__/a.py", ".git/a.py", ".venv/a.py", "node_modules/a.py", "env/lib/site-packages/a.py", "made/lib/a.py", "notes.txt", "a.pyc",
])
def test_what_is_not_the_packs_own_code_is_not_looked_at(pack, name):
    path = pack / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.startswith("made/"):
        (pack / "made" / "pyvenv.cfg").touch()
    before = source_watch.look([pack])
    path.write_text("changed")
    assert source_watch.look([pack]) == before


def test_a_root_that_is_missing_or_goes_away_is_a_pack_without_files(tmp_path):
    assert source_watch.look([tmp_path / "nowhere"]) == {}
    watch = SourceWatch([tmp_path / "later"])
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "a.py").touch()
    assert watch.poll() == Change(settled=False)


def test_a_link_that_leads_back_is_not_followed_for_ever(pack):
    (pack / "loop").symlink_to(pack, target_is_directory=True)
    assert len(source_watch.look([pack])) == 2


def test_a_fault_is_told_with_file_line_and_reason_as_the_environments_own_interpreter_sees_it(pack, interpreters):
    (pack / "inner" / "more.py").write_text("def f():\n    return (\n")
    told = fault_of([str(pack / "nodes.py"), str(pack / "inner" / "more.py")], sys.executable)
    assert "more.py:2: " in told and "never closed" in told
    old = interpreters.get("3.9")
    if old is not None:
        (pack / "inner" / "more.py").write_text("match 1:\n    case 1: pass\n")
        assert fault_of([str(pack / "inner" / "more.py")], sys.executable) == ""
        assert "more.py:1: " in fault_of([str(pack / "inner" / "more.py")], old), "what this Python can read, that one cannot"


def test_files_that_were_removed_have_no_fault(pack):
    assert fault_of([str(pack / "gone.py")], sys.executable) == ""


def test_an_interpreter_that_cannot_be_run_is_the_fault(pack):
    assert "cannot be run" in fault_of([str(pack / "nodes.py")], pack / "no-python")
