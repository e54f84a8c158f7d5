"""Turns errors of the pool into those a node would have raised in ComfyUI itself.

Core decides by class: an interrupt and an out-of-memory are its own classes, whatever else a node raises keeps class and
message. The worker's traceback continues the host's, so that a report pasted from the screen shows the pack's file and line.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from functools import cache

from comfy_env import errors
from comfy_env.comfyui import prompts

_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_MOST_FRAMES = 100
_INTERRUPTS = ("comfy.model_management.InterruptProcessingException",)
"""Core's own interrupt as a node raised it. Since 0.38 it is no Exception, and no such error is rebuilt from what a worker told."""


class ForeignError(Exception):
    """An exception of a class that only the worker knows; its subclasses carry that class's name."""


def translated(error: errors.ComfyEnvError, env: str) -> BaseException:
    """Return what the node's caller must get for an error of the pool."""
    if isinstance(error, errors.Interrupted):
        return prompts.interrupted_error()
    if not isinstance(error, errors.NodeRaised):
        return error
    if error.remote_type in _INTERRUPTS:
        return prompts.interrupted_error()
    cause = error.__cause__
    original = cause if cause is not None else _foreign(error)
    facts = f"worker of env {env}, generation {error.generation}, pid {error.pid}"
    _note(original, f"raised in the {facts}")
    return original.with_traceback(_traceback(error.remote_traceback, facts))


def _foreign(error: errors.NodeRaised) -> BaseException:
    module, _, name = error.remote_type.rpartition(".")
    text = error.message.partition(": ")[2]
    return _class_of(module or "builtins", name)(text)


@cache
def _class_of(module: str, name: str) -> type[ForeignError]:
    return type(name, (ForeignError,), {"__module__": module, "__qualname__": name})


def _note(error: BaseException, text: str) -> None:
    notes = list(getattr(error, "__notes__", ()))
    error.__notes__ = [*notes, text]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the traceback

def _traceback(text: str, facts: str) -> types.TracebackType | None:
    """Return a traceback with the frames that a worker's text tells of, under one that says where they are."""
    last = text.rpartition("\nTraceback (most recent call last):\n")[2]
    frames = [(f"<{facts}>", 1, "run"), *_frames(last)][:_MOST_FRAMES]
    chain: types.TracebackType | None = None
    for file, line, name in reversed(frames):
        made = _frame(file, line, name)
        chain = types.TracebackType(chain, made.tb_frame, made.tb_lasti, line)
    return chain


def _frames(text: str) -> Iterator[tuple[str, int, str]]:
    for found in _FRAME.finditer(text):
        yield found["file"], int(found["line"]), found["name"]


def _frame(file: str, line: int, name: str) -> types.TracebackType:
    """Return a traceback entry that names a file, a line and a function, by raising in code that claims to be there."""
    code = compile("raise KeyError", file, "exec").replace(co_name=name, co_firstlineno=line)
    try:
        exec(code, {"__name__": file})
    except KeyError as error:
        inner = error.__traceback__
        assert inner is not None and inner.tb_next is not None
        return inner.tb_next
    raise AssertionError("the code above raises")


