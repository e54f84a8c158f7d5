"""Codecs of packs: how objects of a pack's own classes are written as plain values, and read again at the other end.

One table per process. What is written travels with the class's name and a tag, and is read only where a codec of both is
known. An end that knows none keeps what it got sealed, or refuses it: that is its side's decision.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Union

from . import sealed
from .decoder import Fresh
from .faults import DecodeFault, EncodeFault

Turn = Callable[[Any], Any]


class SealedValue:
    """An object of a pack as its codec wrote it, where nothing can read it. It can be passed on, and that is all."""

    __slots__ = ("__weakref__", "_content", "_why", "name", "tag")

    def __init__(self, name: str, tag: str, content: Any, why: str = "") -> None:
        self.name, self.tag, self._content, self._why = name, tag, content, why

    def __repr__(self) -> str:
        return f"<sealed {self.name} ({self.tag})>"


class Codec(NamedTuple):
    """``kind`` is the class itself, None for any class of that ``name``; subclasses are written as it is."""

    name: str
    tag: str
    kind: Optional[type]
    write: Turn
    read: Optional[Turn]


class Codecs:
    """The codecs of this process by the names of their classes."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Codec]] = {}

    def register(self, kind: Union[type, str], write: Callable[..., Any], read: Optional[Callable[..., Any]] = None,
                 tag: Optional[str] = None) -> None:
        """Have a class, or all classes of a name, cross by value. A later codec of the same class and tag replaces an earlier one."""
        name = kind if isinstance(kind, str) else kind.__name__
        made = Codec(name, tag or name, None if isinstance(kind, str) else kind, _turn(write), None if read is None else _turn(read))
        others = [one for one in self._by_name.get(name, ()) if (one.tag, one.kind) != (made.tag, made.kind)]
        self._by_name[name] = [made, *others]

    def of(self, cls: type) -> Optional[Codec]:
        """Return what writes objects of a class: its own codec, else that of its nearest base."""
        known = self._by_name
        if not known:
            return None
        found = (one for base in cls.__mro__[:-1] for one in known.get(base.__name__, ()) if one.kind in (None, base))
        return next(found, None)

    def reads(self, name: str, tag: str) -> Optional[Turn]:
        """Return what reads a class's objects under a tag, None if nothing does."""
        return next((one.read for one in self._by_name.get(name, ()) if one.tag == tag and one.read is not None), None)


codecs = Codecs()


def _turn(function: Callable[..., Any]) -> Turn:
    """Return a codec's function with one argument. Some take a second, to turn values inside with: what crosses does that by itself."""
    try:
        wanted = [one for one in inspect.signature(function).parameters.values()
                  if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty]
    except (TypeError, ValueError):   # written in C: it tells nothing of itself
        return function
    return function if len(wanted) < 2 else lambda value: function(value, _same)


def _same(value: Any, *more: Any) -> Any:
    return value


def row(codec: Codec) -> Callable[[Any], Any]:
    """Return the row of a class that has a codec."""

    def write(obj: Any) -> Any:
        try:
            content = codec.write(obj)
        except Exception as error:  # a pack's own code
            why = f"cannot be written by its pack's codec {codec.tag!r} ({type(error).__name__}: {error})"
            raise EncodeFault(obj, why) from error
        return sealed.CODED, (codec.name, codec.tag, content)

    return write


def pass_on(value: SealedValue) -> Any:
    """The row of sealed values: as they came."""
    return sealed.CODED, (value.name, value.tag, value._content)


class _Kept(threading.local):
    """Whether this thread read a message with values that nothing could read yet."""

    any = False


_kept = _Kept()


def keep(name: str, tag: str, content: Any, why: str) -> SealedValue:
    """Keep a value sealed until what it is for has been imported, which may bring its codec; see `opened`."""
    _kept.any = True
    return SealedValue(name, tag, content, why)


def opened(values: Any) -> Any:
    """Return what this thread read last with its sealed values read; raises TypeError that names one that cannot be."""
    if not _kept.any:
        return values
    _kept.any = False
    return _opened(values)


def _opened(value: Any) -> Any:
    if type(value) is SealedValue:
        return bound(_refuse)(Fresh(), value.name, value.tag, _opened(value._content))
    if type(value) is dict:
        return {key: _opened(item) for key, item in value.items()}
    return type(value)(map(_opened, value)) if type(value) in (list, tuple) else value


def _refuse(name: str, tag: str, content: Any, why: str) -> Any:
    raise TypeError(f"an argument is a {name} ({tag}), which this environment cannot read: {why}")


Unread = Callable[[str, str, Any, str], Any]
"""Decides about a value that nothing here can read: name, tag, content, why."""


def bound(unread: Unread) -> Callable[..., Any]:
    """Return the reconstructor of values that a codec wrote."""

    def rebuild(fresh: Fresh, name: Any, tag: Any, content: Any) -> Any:
        if type(name) is not str or type(tag) is not str:
            raise DecodeFault("a value of a codec is named by something else than words")
        read = codecs.reads(name, tag)
        if read is None:
            return unread(name, tag, content, "no codec of it is registered here")
        try:
            return read(content)
        except ImportError as error:
            return unread(name, tag, content, f"its codec needs what is not installed here: {error}")
        except Exception as error:  # a pack's own code
            raise DecodeFault(f"a {name} cannot be read by its pack's codec {tag!r} ({type(error).__name__}: {error})") from error

    return rebuild
