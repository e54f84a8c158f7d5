"""The demo's photo: scikit-image's picture of the astronaut Eileen Collins (NASA, public domain), or one of the user's own.

It is read out of scikit-image's wheel, which is downloaded from the package index and not installed.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import platformdirs

from demo_parts.trouble import DemoTrouble

MEMBER = "skimage/data/astronaut.png"
PNG = b"\x89PNG\r\n\x1a\n"
HINT = "check the network (or the package index pip uses), or give a picture of your own: --photo FILE"


def photo(given: Path | None, cache: Path | None = None) -> Path:
    """Return the path of the photo, downloading it into the user's cache folder at the first time; raises DemoTrouble."""
    if given is not None:
        if not given.is_file():
            raise DemoTrouble(f"there is no picture {given}", hint="name a PNG or JPEG file")
        return given.resolve()
    kept = (cache or platformdirs.user_cache_path("comfy-env", appauthor=False)) / "photos" / "astronaut.png"
    if not kept.is_file():
        _keep(_downloaded(), kept)
    return kept


def _keep(content: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def _downloaded() -> bytes:
    with tempfile.TemporaryDirectory(prefix="comfy-env-photo-") as folder:
        options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", f"--dest={folder}"]
        command = [*_pip(), "download", *options, "scikit-image"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
        except subprocess.TimeoutExpired:
            raise DemoTrouble("the photo could not be downloaded within 5 minutes", hint=HINT) from None
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise DemoTrouble("the photo could not be downloaded", output=tuple(done.stderr.strip().splitlines()[-3:]), hint=HINT)
        return content_of(wheels[0])


def content_of(wheel: Path) -> bytes:
    """Return the photo in a wheel; raises DemoTrouble if it holds none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(MEMBER)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DemoTrouble(f"{wheel.name} holds no {MEMBER}: {error}", hint=HINT) from error
    if not content.startswith(PNG):
        raise DemoTrouble(f"{MEMBER} of {wheel.name} is not a PNG file", hint=HINT)
    return content


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    if uv is None:
        raise DemoTrouble("there is neither pip nor uv to download the photo with", hint=HINT)
    return [uv, "tool", "run", "pip"]
