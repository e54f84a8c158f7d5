"""Describes a pack as JSON: everything core looks at in its classes, and what the pack wanted to register."""

from __future__ import annotations

import importlib.util
import inspect
import platform
import traceback
from typing import Any, Optional

from . import plain, questions
from .mirror import mirror
from .stub_server import recorded

METHODS = {
    "v1": ("IS_CHANGED", "VALIDATE_INPUTS", "check_lazy_status"),
    "v3": ("fingerprint_inputs", "validate_inputs", "check_lazy_status"),
}
NOT_MIRRORED = frozenset({"INPUT_TYPES", "IS_CHANGED", "VALIDATE_INPUTS", "RELATIVE_PYTHON_MODULE"})
LARGEST = 64 * 1024


def describe(pack: Any) -> dict[str, Any]:
    """Return the description of an imported pack."""
    return {
        "nodes": {str(name): _described(cls, pack.names.get(name)) for name, cls in pack.classes.items()},
        "names": {str(name): str(text) for name, text in pack.names.items()},
        "web": plain.encode(getattr(pack.module, "WEB_DIRECTORY", None)),
        "registered": list(recorded.entries),
        "flags": list(mirror.mismatches),
        "python": platform.python_version(),
        "torch": importlib.util.find_spec("torch") is not None,
    }


def _described(cls: Any, display_name: Any) -> dict[str, Any]:
    """Return the description of one class; one that cannot be described says why, and hides no other."""
    try:
        return _v3(cls) if questions.is_v3(cls) else _v1(cls)
    except Exception as error:  # a pack's own code can raise anything
        return {"api": "v1", "broken": "".join(traceback.format_exception_only(type(error), error)).strip()}


def _v1(cls: Any) -> dict[str, Any]:
    return {
        "api": "v1",
        "module": cls.__module__,
        "class": cls.__qualname__,
        "input": questions.inputs(cls),
        "function": _signature(getattr(cls, cls.FUNCTION)),
        "methods": {name: _signature(getattr(cls, name)) for name in METHODS["v1"] if hasattr(cls, name)},
        "attributes": dict(_attributes(cls)),
    }


def _v3(cls: Any) -> dict[str, Any]:
    cls.GET_SCHEMA()
    found = {name: _override(cls, name) for name in METHODS["v3"]}
    return {
        "api": "v3",
        "module": cls.__module__,
        "class": cls.__qualname__,
        "input": questions.inputs(cls),
        "function": _signature(cls.execute),
        "methods": {name: _signature(function) for name, function in found.items() if function is not None},
        "attributes": {},
    }


def _override(cls: Any, name: str) -> Optional[Any]:
    """Return a method if the author wrote it: the base class has all of them."""
    base = getattr(cls.GET_BASE_CLASS(), name, None)
    own = getattr(cls, name, None)
    return None if own is None or getattr(own, "__func__", own) is getattr(base, "__func__", base) else own


def _signature(function: Any) -> dict[str, Any]:
    """Return what core reads of a function: names of its arguments, `**` or not, coroutine or not."""
    spec = inspect.getfullargspec(function)
    return {"args": spec.args, "keywords": spec.kwonlyargs, "more": spec.varkw is not None, "async": inspect.iscoroutinefunction(function)}


def _attributes(cls: Any) -> Any:
    """Yield every upper-case attribute that JSON can hold."""
    for name in dir(cls):
        if not name.isupper() or name.startswith("_") or name in NOT_MIRRORED:
            continue
        value = getattr(cls, name)
        if not callable(value) or isinstance(value, type(None)):
            written = plain.encode(value)
            if len(repr(written)) <= LARGEST and "'of':" not in repr(written):
                yield name, written
