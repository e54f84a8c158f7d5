"""The only names a stream may use, and the callables they stand for at the receiving end.

A `Marker` is what the sender writes: an opaque name in this module. A `Sealed` is what the receiver puts in its place:
an object without attributes that can be called and nothing else, so that a stream's BUILD, APPEND and NEWOBJ have
nothing to act on. With plain functions a BUILD would rewrite their defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class Marker:
    """A name that stands for a reconstructor."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> NoReturn:
        """Be what pickle takes for a function; a marker is only ever written."""
        raise TypeError(f"{self!r} stands for a reconstructor and is none")

    def __repr__(self) -> str:
        return f"<Marker {self.name}>"


class Sealed:
    """A callable that cannot be changed."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("a reconstructor cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a reconstructor cannot be changed")


MODULE = __name__

# plain standard values
CONST = Marker("CONST")
COMPLEX = Marker("COMPLEX")
RANGE = Marker("RANGE")
SLICE = Marker("SLICE")
ODICT = Marker("ODICT")
DDICT = Marker("DDICT")
COUNTER = Marker("COUNTER")
DEQUE = Marker("DEQUE")
SPACE = Marker("SPACE")
LATE = Marker("LATE")
FILL = Marker("FILL")

# values that name a class
MEMBER = Marker("MEMBER")
RECORD = Marker("RECORD")
NAMED = Marker("NAMED")
RAISED = Marker("RAISED")

# objects that stay where they are, and callables by value
REF = Marker("REF")
VALUE = Marker("VALUE")
RELAYED = Marker("RELAYED")

# objects of packs, as their own codecs write them
CODED = Marker("CODED")

# arrays, pictures, tensors
ARRAY = Marker("ARRAY")
ITEMS = Marker("ITEMS")
WINDOW = Marker("WINDOW")
SCALAR = Marker("SCALAR")
DTYPE = Marker("DTYPE")
PICTURE = Marker("PICTURE")
TENSOR = Marker("TENSOR")
LENT = Marker("LENT")
TORCH = Marker("TORCH")
SIZE = Marker("SIZE")
RANDOM = Marker("RANDOM")
