"""The receiving half of the codec: a stream may name markers only, and gets sealed callables for them.

A stream's opcodes can do more than name things: BUILD sets an object's state, APPEND and SETITEM call its methods. On
what this codec makes natively that is harmless. It is not where the stream gets hold of something that was there before
it (an Enum's member) or that belongs to a class of this process. So a *wary* codec reads a stream that asks for such a
thing again with a reader in Python that knows no opcode but those a sound sender writes. The same reader takes streams
that make foreign objects (arrays, tensors, pictures) and could hold a BUILD.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from .faults import DecodeFault, ReferenceGone
from .sealed import MODULE, Sealed


class Names:
    """What a stream may name: ``plain`` callables, ``foreign`` ones and ``delicate`` ones, see above.

    A callable of ``bound`` takes the reading's own `Fresh` before its arguments; ``wary_bound`` names the delicate ones of them.
    """

    def __init__(self, plain: Mapping[str, Callable[..., Any]], foreign: Mapping[str, Callable[..., Any]],
                 delicate: Mapping[str, Callable[..., Any]], bound: Mapping[str, Callable[..., Any]], wary: bool,
                 wary_bound: frozenset[str]) -> None:
        self.sealed = {name: Sealed(call) for table in (plain, foreign, delicate) for name, call in table.items()}
        self.bound = bound
        self.foreign = frozenset(foreign) if wary else frozenset()
        self.delicate = wary_bound.union(delicate) if wary else frozenset()


class _ReadWarily(Exception):
    """The stream asks for something that only the wary reader may hand out."""


class Fresh:
    """What one reading made and may still fill: nothing that was there before it.

    ``adopted`` are objects made for references to the other end, ``spared`` the numbers of references that were not
    needed. Both count only once the reading is over: a stream may be read twice.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Callable[[Any, Any], None]]] = {}
        self.adopted: list[Any] = []
        self.spared: list[int] = []

    def add(self, obj: Any, fill: Callable[[Any, Any], None]) -> Any:
        self._made[id(obj)] = (obj, fill)
        return obj

    def fill(self, obj: Any, state: Any) -> None:
        """Give an object its content, once."""
        _, fill = self._made.pop(id(obj), (None, None))
        if fill is None:
            raise DecodeFault("a stream fills an object that it did not make")
        fill(obj, state)


class _Reader(pickle.Unpickler):
    """The fast reader."""

    names: Names
    payload: bytes
    fresh: Optional[Fresh] = None

    def find_class(self, module: str, name: str) -> Any:
        names = self.names
        if module == MODULE and (name in names.delicate or name in names.foreign and b"b" in self.payload):
            raise _ReadWarily
        return _find(self, module, name)


def _find(reader: Any, module: str, name: str) -> Sealed:
    """Return what a marker's name stands for in this reading; raises DecodeFault for any other name."""
    names = reader.names
    if module == MODULE and name in names.sealed:
        return names.sealed[name]
    if module != MODULE or name not in names.bound:
        raise DecodeFault(f"a message names {module}.{name}, which no message may")
    if reader.fresh is None:
        reader.fresh = Fresh()
    fresh, bound = reader.fresh, names.bound[name]
    return Sealed(lambda *args: bound(fresh, *args))


_PYTHON_READER: Any = pickle._Unpickler  # type: ignore[attr-defined]
_REFUSED = {
    getattr(pickle, name)[0]
    for name in ("BUILD", "EXT1", "EXT2", "EXT4", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID")
}
_GROWING = (list, deque)
_MAPPING = (dict, OrderedDict, defaultdict, Counter)


class _Opcodes(dict):
    """Opcodes and what reads them."""

    def __missing__(self, code: int) -> Any:
        raise DecodeFault(f"a message holds opcode {code:#04x}, which no sender writes")


class _WaryReader(_PYTHON_READER):
    """The reader in Python: knows only the opcodes that a sound sender writes, and only on what they are meant for."""

    dispatch = _Opcodes({code: read for code, read in _PYTHON_READER.dispatch.items() if code not in _REFUSED})

    fresh: Optional[Fresh] = None

    def load(self) -> Any:
        """Read the stream as one piece: frames say only how much to read ahead, and all of it is here."""
        read = self.read = self._file_read
        self.readline = self._file_readline
        self.metastack: list[Any] = []
        self.stack: list[Any] = []
        self.append = self.stack.append
        self.proto = 0
        dispatch = self.dispatch
        try:
            while True:
                dispatch[read(1)[0]](self)   # past the end there is no opcode
        except pickle._Stop as stop:  # type: ignore[attr-defined]
            return stop.value

    def load_bytearray8(self) -> None:
        self.append(bytearray(self.read(int.from_bytes(self.read(8), "little"))))   # as much as came, whatever it claims

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def load_frame(self) -> None:
        self.read(8)

    def find_class(self, module: str, name: str) -> Any:
        return _find(self, module, name)

    def load_reduce(self) -> None:
        args = self.stack.pop()
        call = self.stack[-1]
        _need(call, (Sealed,), "called")
        _need(args, (tuple,), "given as arguments")
        self.stack[-1] = call(*args)

    def load_append(self) -> None:
        item = self.stack.pop()
        _need(self.stack[-1], _GROWING, "appended to")
        self.stack[-1].append(item)

    def load_appends(self) -> None:
        items = self.pop_mark()
        _need(self.stack[-1], _GROWING, "appended to")
        self.stack[-1].extend(items)

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        _need(self.stack[-1], _MAPPING, "written to")
        self.stack[-1][key] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _need(self.stack[-1], _MAPPING, "written to")
        target = self.stack[-1]
        for i in range(0, len(items), 2):
            target[items[i]] = items[i + 1]

    def load_additems(self) -> None:
        items = self.pop_mark()
        _need(self.stack[-1], (set,), "added to")
        self.stack[-1].update(items)

    dispatch[pickle.FRAME[0]] = load_frame
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = load_appends
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.ADDITEMS[0]] = load_additems


def _need(obj: Any, types: tuple[type, ...], done: str) -> None:
    if type(obj) not in types:
        raise DecodeFault(f"a message holds an object of type {type(obj).__name__} that must not be {done}")


def read(names: Names, payload: Any, buffers: Iterable[memoryview]) -> tuple[Any, Optional[Fresh]]:
    """Return the value of a message, and what the reading made of references, if anything.

    Raises DecodeFault for everything that is not as a sound sender writes it.
    """
    payload = payload if type(payload) is bytes else bytes(payload)
    reader: Any = _WaryReader if _extensions_count(payload) else _Reader
    try:
        try:
            return _read_with(reader, names, payload, buffers)
        except _ReadWarily:
            return _read_with(_WaryReader, names, payload, buffers)
    except (DecodeFault, ReferenceGone):
        raise
    except MemoryError as error:
        raise DecodeFault("there is not enough memory to read a message") from error
    except Exception as error:  # a damaged or hostile stream can raise whatever a reconstructor raises
        raise DecodeFault(f"a message cannot be read ({type(error).__name__}: {error})") from error


def _extensions_count(payload: bytes) -> bool:
    """Tell whether the stream could mean an object that some library registered under an extension code."""
    if not (copyreg._extension_cache or copyreg._inverted_registry):  # type: ignore[attr-defined]
        return False
    return any(code in payload for code in (pickle.EXT1, pickle.EXT2, pickle.EXT4))


def _read_with(reader_class: Any, names: Names, payload: bytes, buffers: Iterable[memoryview]) -> tuple[Any, Optional[Fresh]]:
    reader = reader_class(io.BytesIO(payload), buffers=buffers)
    reader.names = names
    reader.payload = payload
    return reader.load(), reader.fresh
