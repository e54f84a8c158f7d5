"""Tiny wheels made by hand, and a folder of them that needs no network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def make(
    folder: Path, name: str, version: str, code: str = "", requires: tuple[str, ...] = (), tag: str = "py3-none-any", python: str = ""
) -> Path:
    """Write a wheel with one package that holds the code, and return it."""
    info = f"{name}-{version}.dist-info"
    head = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *(f"Requires-Dist: {line}\n" for line in requires)]
    files = {
        f"{name}/__init__.py": code or f"__version__ = {version!r}\n",
        f"{info}/METADATA": "".join(head) + (f"Requires-Python: {python}\n" if python else ""),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-say = {name}:say\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in files.items()) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            out.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
