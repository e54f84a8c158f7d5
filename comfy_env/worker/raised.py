"""Describes an exception for the host in plain values, whatever its class does."""

from __future__ import annotations

import importlib
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None))
_LONGEST = 100_000


def describe(error: BaseException, skip: int = 1) -> dict[str, Any]:
    """Return type, arguments, text and traceback; the first ``skip`` frames are this package's own."""
    cls = type(error)
    return {
        "type": [cls.__module__, cls.__qualname__],
        "args": _arguments(error),
        "text": text_of(error),
        "traceback": _traceback(error, skip),
    }


def text_of(error: BaseException) -> str:
    """Return str(error), or what stands for it if that raises."""
    try:
        return str(str(error))[:_LONGEST]
    except Exception as second:  # a class's own __str__ can raise anything
        return f"<its text cannot be had: {type(second).__name__}>"


def _arguments(error: BaseException) -> tuple[Any, ...]:
    try:
        args = error.args
    except Exception:  # a class's own `args` can raise anything
        args = ()
    if not isinstance(args, tuple):
        return ()
    return tuple(arg if type(arg) in _PLAIN else f"<{type(arg).__module__}.{type(arg).__qualname__}>" for arg in args)


def _traceback(error: BaseException, skip: int) -> str:
    trace = error.__traceback__
    for _ in range(skip):
        trace = trace.tb_next if trace is not None and trace.tb_next is not None else trace
    module = importlib.import_module("traceback")
    try:
        return "".join(module.format_exception(type(error), error, trace))[-_LONGEST:]
    except Exception as second:  # a chained exception's class can raise while it is written
        return "".join(module.format_tb(trace)) + f"{type(error).__qualname__} (cannot be written: {type(second).__name__})\n"
