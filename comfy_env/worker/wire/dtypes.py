"""numpy types as plain values, and back: with titles, alignment, the class of their records, and metadata."""

from __future__ import annotations

import re
from typing import Any

from .faults import DecodeFault, EncodeFault

_SIMPLE = re.compile(r"[<>|=][?biufcSUVmMO]\d*(\[\d*[a-zA-Z]+\])?")
_RECORDS = ("void", "record")


def dtype_spec(dtype: Any, owner: Any, objects: bool = False) -> Any:
    """Return a dtype as plain values: a string, or a tuple for structured and sub-array types and those with metadata.

    ``owner`` is who is refused for it; ``objects``: Python objects may be meant, since none are in it.
    """
    if dtype.metadata:
        return "meta", _bare_spec(dtype, owner, objects), dict(dtype.metadata)
    return _bare_spec(dtype, owner, objects)


def _bare_spec(dtype: Any, owner: Any, objects: bool) -> Any:
    if dtype.names is not None:
        return _fields_spec(dtype, owner, objects)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return "sub", dtype_spec(base, owner, objects), shape
    if dtype.kind not in "?biufcSUVmMO" or dtype.isbuiltin == 2 or (dtype.kind == "O" and not objects) or _is_strange_void(dtype):
        raise _refused(dtype, owner)
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        raise EncodeFault(owner, f"holds numpy type {dtype}, whose layout depends on the machine")
    return dtype.str


def _fields_spec(dtype: Any, owner: Any, objects: bool) -> Any:
    kind = dtype.type.__name__
    if dtype.type.__module__ != "numpy" or kind not in _RECORDS:
        raise _refused(dtype, owner)
    fields = [dtype.fields[name] for name in dtype.names]
    formats, offsets = tuple(dtype_spec(field[0], owner, objects) for field in fields), tuple(field[1] for field in fields)
    titles = tuple(field[2] if len(field) > 2 else None for field in fields)
    return "struct", dtype.names, formats, offsets, titles, dtype.itemsize, dtype.isalignedstruct, kind


def _is_strange_void(dtype: Any) -> bool:
    return dtype.kind == "V" and (dtype.type.__module__, dtype.type.__name__) != ("numpy", "void")


def _refused(dtype: Any, owner: Any) -> EncodeFault:
    return EncodeFault(owner, f"holds numpy type {dtype}, which has no safe form outside its process")


def make_dtype(numpy: Any, spec: Any) -> Any:
    """Return the dtype of a specification."""
    if type(spec) is str and _SIMPLE.fullmatch(spec):   # numpy itself would parse expressions in it
        return numpy.dtype(spec)
    if type(spec) is not tuple or not spec:
        raise DecodeFault(f"{spec!r:.100} is no numpy type")
    if spec[0] == "sub":
        return numpy.dtype((make_dtype(numpy, spec[1]), spec[2]))
    if spec[0] == "meta":
        return numpy.dtype(make_dtype(numpy, spec[1]), metadata=spec[2])
    return _with_fields(numpy, *spec[1:])


def _with_fields(numpy: Any, names: Any, formats: Any, offsets: Any, titles: Any, itemsize: Any, aligned: Any, kind: Any) -> Any:
    if kind not in _RECORDS:
        raise DecodeFault(f"{kind!r:.100} is no class of records")
    told = {"names": list(names), "formats": [make_dtype(numpy, f) for f in formats], "offsets": list(offsets), "itemsize": itemsize}
    if any(title is not None for title in titles):
        told["titles"] = list(titles)
    made = numpy.dtype(told, align=aligned)
    return numpy.dtype((numpy.record, made)) if kind == "record" else made
