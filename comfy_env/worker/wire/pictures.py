"""Rows and reconstructors of PIL images: mode, size, pixels, palette and the plain part of their info."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from . import sealed
from .faults import DecodeFault

Load = Callable[[], Any]
_PLAIN = (str, bytes, int, float, bool, type(None))


def write_picture(picture: Any) -> Any:
    """Write an image; one that was opened from a file is loaded and arrives as a plain image."""
    picture.load()
    palette = None
    if picture.mode in ("P", "PA") and picture.palette is not None:
        raw = "RGBA" if picture.palette.mode == "RGBA" else "RGB"
        palette = (raw, bytes(picture.im.getpalette(raw, raw)))
    info = {str(key): _plain(value) for key, value in picture.info.items() if _is_plain(value)}
    return sealed.PICTURE, (picture.mode, picture.size, palette, info, pickle.PickleBuffer(picture.tobytes()))


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, _PLAIN)


def _plain(value: Any) -> Any:
    """Return a value of an image's info without the subclasses that file plugins use."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return str(value) if isinstance(value, str) else value


def reader(load: Load) -> Callable[..., Any]:
    """Return the reconstructor of images; ``load`` gives the module PIL.Image."""

    def as_picture(mode: Any, size: Any, palette: Any, info: Any, data: Any) -> Any:
        if type(info) is not dict:
            raise DecodeFault("an image's info is not a dict")
        module = load()
        if module is None:
            raise DecodeFault("an image came to a Python without PIL; add pillow to its environment")
        empty = 0 in size
        picture = module.new(mode, size) if empty else module.frombytes(mode, size, bytes(data) if len(data) < 4096 else data)
        if palette is not None:
            picture.putpalette(palette[1], palette[0])
        picture.info = info
        return picture

    return as_picture
