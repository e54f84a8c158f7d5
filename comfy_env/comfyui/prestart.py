"""What a pack calls before ComfyUI has started: standard library only, and no longer than one line takes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from comfy_env import __version__

PLACES = {"input": "get_input_directory", "output": "get_output_directory", "temp": "get_temp_directory", "user": "get_user_directory"}


def setup_env(*args: Any, **kwargs: Any) -> None:
    """Say in one line that the pack keeps an environment of its own; nothing is changed in ComfyUI's.

    For a pack's `prestartup_script.py`. Arguments of older releases are taken and mean nothing.
    """
    folder = _caller()
    sys.stdout.write(f"comfy-env {__version__}: {folder.name} keeps its own environment; `comfy-env status {folder}` tells how it is\n")


def copy_files(src: str | Path, dst: str | Path, pattern: str = "*", overwrite: bool = False) -> int:
    """Copy a pack's files to where ComfyUI finds them, and return how many were copied; what is there stays.

    Both paths are relative to the caller's folder, but `input`, `output`, `temp` and `user` at the head of `dst` mean
    ComfyUI's own folders.
    """
    folder = _caller()
    source, target = folder / src, _target(folder, Path(dst))
    copied = 0
    for path in sorted(source.glob(pattern)):
        place = target / path.relative_to(source)
        if path.is_file() and (overwrite or not place.exists()):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            copied += 1
    return copied


def _target(folder: Path, dst: Path) -> Path:
    head, *rest = dst.parts or (".",)
    paths = sys.modules.get("folder_paths")
    if head in PLACES and paths is not None:
        return Path(getattr(paths, PLACES[head])(), *rest)
    return folder / dst


def _caller() -> Path:
    """Return the folder of the pack's file that called."""
    return Path(os.path.dirname(os.path.abspath(sys._getframe(2).f_globals.get("__file__", "."))))
