"""A small real conda channel on disk: a Python made of the one that runs here, and packages without content worth naming."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import struct
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

VERSION = ".".join(map(str, sys.version_info[:3]))
MINOR = ".".join(map(str, sys.version_info[:2]))
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3",
            "pydoc_data"}
BLOCK = 128 * 1024


def make(folder: Path, platform: str) -> Path:
    """Write the channel and index it; returns the folder."""
    for name in (platform, "noarch"):
        (folder / name).mkdir(parents=True)
    links = {"bin/python": f"python{MINOR}", "bin/python3": f"python{MINOR}"}
    package(folder, platform, "python", VERSION, python_files(), links=links)
    greeting(folder, "1.0", "hello")
    greeting(folder, "1.1", "good day")
    package(folder, "noarch", "needs-later", "1.0", {"share/x": b""}, ("greeting >=7",))
    package(folder, "noarch", "needs-card", "1.0", {"share/y": b""}, ("__cuda >=99",))
    index(folder)
    return folder


SCRIPT = b"""export GREETING_HOME="$CONDA_PREFIX/share"
export GREETING_SAW="$TOKEN_OF_MINE"
echo "greeting is activated"
"""


def greeting(channel: Path, version: str, word: str) -> Path:
    """Write a package for any Python, with what it changes when it is activated."""
    files = {
        "site-packages/greeting.py": f"WORD = {word!r}\n".encode(), "etc/conda/activate.d/greeting.sh": SCRIPT,
        "etc/conda/env_vars.d/greeting.json": b'{"GREETING_STATE": "on"}',
    }
    return package(channel, "noarch", "greeting", version, files, ("python",), noarch="python")


def index(folder: Path) -> None:
    from rattler.index import index_fs

    asyncio.run(index_fs(folder))


def python_files() -> Iterator[tuple[str, Path]]:
    """Yield this Python's program and standard library by their place in a prefix, its shared library where it has one."""
    yield f"bin/python{MINOR}", Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for key in ("stdlib", "platstdlib"):
        root = Path(sysconfig.get_path(key, vars={"installed_base": sys.base_prefix, "installed_platbase": sys.base_prefix,
                                                  "base": sys.base_prefix, "platbase": sys.base_prefix}))
        for place, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith("config-")]
            for name in names:
                if not name.endswith((".pyc", ".a")):
                    yield f"lib/python{MINOR}/{Path(place, name).relative_to(root)}", Path(place, name)
    library = sysconfig.get_config_var("INSTSONAME")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library:
        yield f"lib/{library}", Path(sysconfig.get_config_var("LIBDIR"), library)


def package(
    channel: Path, subdir: str, name: str, version: str, files: Iterable[tuple[str, Path]] | dict[str, bytes],
    depends: tuple[str, ...] = (), links: dict[str, str] | None = None, noarch: str = "",
) -> Path:
    """Write a package; returns its file."""
    held = dict(files)
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": list(depends), "subdir": subdir}
    if noarch:
        index["noarch"] = noarch
    rows = []
    with io.BytesIO() as content:
        with tarfile.open(fileobj=content, mode="w") as tar:
            for path, source in sorted(held.items()):
                data = source if isinstance(source, bytes) else source.read_bytes()
                _add(tar, path, data)
                rows.append(_row(path, "hardlink", data))
            for path, target in (links or {}).items():
                entry = tarfile.TarInfo(path)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
                rows.append(_row(path, "softlink", b""))
        body = stored(content.getvalue())
    return _write(channel / subdir / f"{name}-{version}-0.conda", body, index, rows)


def _row(path: str, kind: str, data: bytes) -> dict:
    return {"_path": path, "path_type": kind, "sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(data)}


def _write(file: Path, body: bytes, index: dict, rows: list[dict]) -> Path:
    about = {"info/index.json": json.dumps(index).encode(), "info/paths.json": json.dumps({"paths": rows, "paths_version": 1}).encode()}
    with io.BytesIO() as info:
        with tarfile.open(fileobj=info, mode="w") as tar:
            for path, data in about.items():
                _add(tar, path, data)
        head = stored(info.getvalue())
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr(f"info-{file.stem}.tar.zst", head)
        archive.writestr(f"pkg-{file.stem}.tar.zst", body)
    return file


def _add(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(data), 0o755 if path.startswith("bin/") or ".so" in path else 0o644
    tar.addfile(entry, io.BytesIO(data))


def stored(data: bytes) -> bytes:
    """Return the data as a zstandard frame that holds it as it is: no compressor is needed, and none waited for."""
    blocks = [data[at: at + BLOCK] for at in range(0, len(data), BLOCK)] or [b""]
    parts = [struct.pack("<IBQ", 0xFD2FB528, 0xE0, len(data))]
    for number, block in enumerate(blocks, start=1):
        parts += [struct.pack("<I", len(block) << 3 | (number == len(blocks)))[:3], block]
    return b"".join(parts)
