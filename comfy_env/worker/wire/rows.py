"""Rows and reconstructors of the standard library's values.

Modules that a small worker never needs (decimal, datetime, pathlib, …) are looked up when such a value is met.
"""

from __future__ import annotations

import importlib
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Optional

from . import sealed
from .decoder import Fresh
from .encoder import Row, write_marker
from .faults import DecodeFault, EncodeFault

_CONSTANTS = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
_FACTORIES: dict[str, Optional[Callable[[], Any]]] = {
    "": None, "list": list, "dict": dict, "set": set, "int": int, "float": float, "str": str, "tuple": tuple, "bool": bool,
    "bytes": bytes, "bytearray": bytearray, "frozenset": frozenset, "complex": complex, "OrderedDict": OrderedDict, "deque": deque,
    "Counter": Counter,
}
_FACTORY_NAMES = {factory: name for name, factory in _FACTORIES.items()}

# classes looked up late: name on the wire -> (module, class)
_LATE = {
    "Decimal": ("decimal", "Decimal"),
    "Fraction": ("fractions", "Fraction"),
    "UUID": ("uuid", "UUID"),
    "date": ("datetime", "date"),
    "time": ("datetime", "time"),
    "datetime": ("datetime", "datetime"),
    "timedelta": ("datetime", "timedelta"),
    "timezone": ("datetime", "timezone"),
    "ZoneInfo": ("zoneinfo", "ZoneInfo"),
    "Path": ("pathlib", "Path"),
    "PurePosixPath": ("pathlib", "PurePosixPath"),
    "PureWindowsPath": ("pathlib", "PureWindowsPath"),
    "array": ("array", "array"),
}


# ---------------------------------------------------------------- sending

def _constant(obj: Any) -> Any:
    return sealed.CONST, (repr(obj),)


def _defaultdict(obj: Any) -> Any:
    name = _FACTORY_NAMES.get(obj.default_factory) if _is_hashable(obj.default_factory) else None
    if name is None:
        raise EncodeFault(obj, "is a defaultdict whose factory is none of " + ", ".join(filter(None, _FACTORIES)))
    return sealed.DDICT, (name,), None, None, iter(obj.items())


def _is_hashable(obj: Any) -> bool:
    return type(obj).__hash__ is not None


def _space(obj: Any) -> Any:
    return sealed.SPACE, (), dict(vars(obj)), None, None, sealed.FILL


def _counter(obj: Any) -> Any:
    return sealed.COUNTER, (), None, None, iter(obj.items())


ROWS: dict[type, Row] = {
    sealed.Marker: write_marker,
    type(Ellipsis): _constant,
    type(NotImplemented): _constant,
    complex: lambda c: (sealed.COMPLEX, (c.real, c.imag)),
    range: lambda r: (sealed.RANGE, (r.start, r.stop, r.step)),
    slice: lambda s: (sealed.SLICE, (s.start, s.stop, s.step)),
    OrderedDict: lambda d: (sealed.ODICT, (), None, None, iter(d.items())),
    defaultdict: _defaultdict,
    Counter: _counter,
    deque: lambda d: (sealed.DEQUE, (d.maxlen,), None, iter(d)),
    types.SimpleNamespace: _space,
}


def _late(name: str, *args: Any) -> Any:
    return sealed.LATE, (name, *args)


def _datetime(d: Any) -> Any:
    return _late("datetime", d.year, d.month, d.day, d.hour, d.minute, d.second, d.microsecond, d.tzinfo, d.fold)


def _timezone(zone: Any) -> Any:
    offset, name = zone.utcoffset(None), zone.tzname(None)
    return _late("timezone", offset) if type(zone)(offset).tzname(None) == name else _late("timezone", offset, name)


def _zone(zone: Any) -> Any:
    if zone.key is None:
        raise EncodeFault(zone, "is a time zone without a key")
    return _late("ZoneInfo", zone.key)


def _path(path: Any) -> Any:
    return _late("Path", str(path))


NAMED_ROWS: dict[str, Row] = {
    "decimal.Decimal": lambda d: _late("Decimal", str(d)),
    "fractions.Fraction": lambda f: _late("Fraction", f.numerator, f.denominator),
    "uuid.UUID": lambda u: _late("UUID", u.hex),
    "datetime.date": lambda d: _late("date", d.year, d.month, d.day),
    "datetime.time": lambda t: _late("time", t.hour, t.minute, t.second, t.microsecond, t.tzinfo, t.fold),
    "datetime.datetime": _datetime,
    "datetime.timedelta": lambda t: _late("timedelta", t.days, t.seconds, t.microseconds),
    "datetime.timezone": _timezone,
    "zoneinfo.ZoneInfo": _zone,
    "pathlib.PosixPath": _path,
    "pathlib._local.PosixPath": _path,
    "pathlib.WindowsPath": _path,
    "pathlib._local.WindowsPath": _path,
    "pathlib.PurePosixPath": lambda p: _late("PurePosixPath", str(p)),
    "pathlib._local.PurePosixPath": lambda p: _late("PurePosixPath", str(p)),
    "pathlib.PureWindowsPath": lambda p: _late("PureWindowsPath", str(p)),
    "pathlib._local.PureWindowsPath": lambda p: _late("PureWindowsPath", str(p)),
    "array.array": lambda a: _late("array", a.typecode, a.tobytes()),
}


# ---------------------------------------------------------------- receiving

def _as_constant(name: str) -> Any:
    return _CONSTANTS[name]


def _as_defaultdict(name: str) -> Any:
    return defaultdict(_FACTORIES[name])


def _as_late(name: str, *args: Any) -> Any:
    """Make a value of a class that is looked up now; the arguments can be plain values only."""
    module, attribute = _LATE[name]
    if name in ("datetime", "time"):
        *fields, zone, fold = args
        return getattr(importlib.import_module(module), attribute)(*fields, tzinfo=zone, fold=fold)
    for arg in args:
        if type(arg) not in (int, str, bytes) and type(arg).__name__ != "timedelta":
            raise DecodeFault(f"a {name} made of a {type(arg).__name__}")
    return getattr(importlib.import_module(module), attribute)(*args)


def _as_space(fresh: Fresh) -> Any:
    return fresh.add(types.SimpleNamespace(), _fill_space)


def _fill_space(space: Any, state: Any) -> None:
    if type(state) is not dict:
        raise DecodeFault("a SimpleNamespace filled with something else than a dict")
    vars(space).update(state)


def _as_fill(fresh: Fresh, obj: Any, state: Any) -> None:
    fresh.fill(obj, state)


PLAIN: dict[str, Callable[..., Any]] = {
    "CONST": _as_constant,
    "COMPLEX": complex,
    "RANGE": range,
    "SLICE": slice,
    "ODICT": lambda: OrderedDict(),
    "DDICT": _as_defaultdict,
    "COUNTER": lambda: Counter(),
    "DEQUE": lambda maxlen: deque((), maxlen),
    "LATE": _as_late,
}
BOUND: dict[str, Callable[..., Any]] = {"SPACE": _as_space, "FILL": _as_fill}
