"""Values that name a class of a module: members of an Enum, dataclasses, named tuples, exceptions.

They travel as (module, qualified name) and content. How a name is looked up is the receiver's: a host looks into the
modules that are loaded, a worker may import. No method of the class runs on either end: content is read from and
written to the object itself.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable
from typing import Any, Optional

from . import sealed
from .decoder import Fresh
from .faults import DecodeFault

Find = Callable[[str, str], Any]
Absent = Callable[[Fresh, str, str, str, int, Any], Any]
"""Makes what stands for a value of an unknown class: (fresh, kind, module, qualified name, reference, content)."""

_HEAP_TYPE = 1 << 9


def walk(module: Any, qualname: str) -> Any:
    """Return what a qualified name leads to, without running code; None if it leads nowhere."""
    found: Any = module
    for part in qualname.split("."):
        content = getattr(found, "__dict__", None)
        if content is None or part not in content:
            return None
        found = content[part]
    return found


def can_be_named(cls: type) -> bool:
    """Tell whether a class's module and qualified name lead back to it."""
    module = sys.modules.get(cls.__module__)
    return module is not None and cls.__module__ != "__main__" and walk(module, cls.__qualname__) is cls


def kind_of(cls: type) -> str:
    """Return "member", "record", "named", "raised" or "" for a class."""
    if issubclass(cls, enum.Enum):
        return "member"
    if issubclass(cls, BaseException):
        return "raised"
    if issubclass(cls, tuple):
        return "named" if hasattr(cls, "_fields") and tuple in cls.__bases__ else ""
    if hasattr(cls, "__dataclass_fields__") and _static_base(cls) is object:
        return "record"
    return ""


def _static_base(cls: type) -> type:
    """Return the nearest base that is written in C; its `__new__` runs no code of the class."""
    return next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)


# ---------------------------------------------------------------- sending

def row_for(kind: str, hold: Callable[[Any], int]) -> Callable[[Any], Any]:
    """Return the row of a kind. ``hold`` keeps the object here under a number, for a receiver that lacks the class."""

    def row(obj: Any) -> Any:
        cls = type(obj)
        marker, content, state = _PARTS[kind](obj)
        args = (cls.__module__, cls.__qualname__, hold(obj), content)
        return (marker, args) if state is None else (marker, args, state, None, None, sealed.FILL)

    return row


def _member_parts(obj: Any) -> Any:
    known = obj._name_ in type(obj)._member_map_
    return sealed.MEMBER, (obj._name_, None) if known else (None, obj._value_), None


def _record_parts(obj: Any) -> Any:
    state = dict(getattr(obj, "__dict__", {}))
    for name in type(obj).__dataclass_fields__:
        slot = _slot(type(obj), name)
        if slot is not None and hasattr(obj, name):
            state[name] = slot.__get__(obj)
    return sealed.RECORD, None, state


def _named_parts(obj: Any) -> Any:
    return sealed.NAMED, tuple(obj), None


def _raised_parts(obj: Any) -> Any:
    state = {name: value for name, value in vars(obj).items() if isinstance(name, str)}
    return sealed.RAISED, _arguments(obj), state


def _arguments(error: BaseException) -> tuple[Any, ...]:
    if not isinstance(error, OSError) or error.filename is None or len(error.args) != 2:
        return error.args
    more = () if error.filename2 is None else (None, error.filename2)
    return (*error.args, error.filename, *more)


_PARTS: dict[str, Callable[[Any], Any]] = {
    "member": _member_parts, "record": _record_parts, "named": _named_parts, "raised": _raised_parts,
}


def _slot(cls: type, name: str) -> Optional[Any]:
    for base in cls.__mro__:
        found = base.__dict__.get(name)
        if isinstance(found, types.MemberDescriptorType):
            return found
    return None


# ---------------------------------------------------------------- receiving

def bound(find: Find, absent: Absent) -> dict[str, Callable[..., Any]]:
    """Return the reconstructors of values that name a class."""

    def make(kind: str) -> Callable[..., Any]:
        def rebuild(fresh: Fresh, module: str, qualname: str, reference: int, content: Any) -> Any:
            if type(module) is not str or type(qualname) is not str or type(reference) is not int:
                raise DecodeFault("a class is named by something else than words")
            cls = find(module, qualname)
            if cls is None or not isinstance(cls, type) or kind_of(cls) != kind:
                return absent(fresh, kind, module, qualname, reference, content)
            if reference:
                fresh.spared.append(reference)
            return _REBUILD[kind](fresh, cls, content)

        return rebuild

    return {"MEMBER": make("member"), "RECORD": make("record"), "NAMED": make("named"), "RAISED": make("raised")}


def _as_member(fresh: Fresh, cls: Any, content: Any) -> Any:
    name, value = content
    if name is not None:
        return cls._member_map_[name]
    if not issubclass(cls, enum.Flag) or type(value) is not int:
        raise DecodeFault(f"{cls.__qualname__} has no such member")
    return cls(value)


def _as_record(fresh: Fresh, cls: Any, content: Any) -> Any:
    return fresh.add(object.__new__(cls), _fill_record)


def _fill_record(obj: Any, state: Any) -> None:
    for name, value in _entries(state):
        slot = _slot(type(obj), name)
        if slot is not None:
            slot.__set__(obj, value)
        else:
            obj.__dict__[name] = value


def _entries(state: Any) -> list[tuple[str, Any]]:
    if type(state) is not dict or any(type(name) is not str for name in state):
        raise DecodeFault("an object's content is not a dict of names")
    return list(state.items())


def _as_named(fresh: Fresh, cls: Any, content: Any) -> Any:
    if type(content) is not tuple or len(content) != len(cls._fields):
        raise DecodeFault(f"{cls.__qualname__} has {len(cls._fields)} fields")
    return tuple.__new__(cls, content)


def blank_exception(cls: Any, args: Any) -> BaseException:
    """Return an exception of a class with these arguments, without running the class's code."""
    if type(args) is not tuple:
        raise DecodeFault("an exception's arguments are not a tuple")
    base = _static_base(cls)
    try:
        error = base.__new__(cls, *args)
    except Exception:  # a class as strict as ExceptionGroup about what it is made of
        error = BaseException.__new__(cls)
    if not error.args:   # OSError leaves them to an __init__ that some subclass wrote
        error.args = args
    return error


def _as_raised(fresh: Fresh, cls: Any, content: Any) -> Any:
    return fresh.add(blank_exception(cls, content), _fill_raised)


def _fill_raised(error: BaseException, state: Any) -> None:
    vars(error).update(_entries(state))


_REBUILD: dict[str, Callable[[Fresh, Any, Any], Any]] = {
    "member": _as_member, "record": _as_record, "named": _as_named, "raised": _as_raised,
}
