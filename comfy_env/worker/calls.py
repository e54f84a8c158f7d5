"""Runs one call: finds the function, arms the interrupt, tells how it ended."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Optional

from .interrupts import CallInterrupted, Interrupts
from .raised import describe
from .wire.kinds import Kind


class Calls:
    """The calls of one worker, one at a time. ``node`` tells which node of a prompt runs, None for a plain function."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.request: Optional[int] = None
        self.node: Optional[dict[str, Any]] = None

    def run(self, request: int, message: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
        """Return the kind of the answering frame and its message."""
        self.interrupts.begin(request)
        self.request, self.node = request, message.get("node")
        try:
            return Kind.REPLY, {"value": self._apply(message)}
        except CallInterrupted:
            return Kind.INTERRUPTED, {}
        except BaseException as error:  # whatever a called function raises, SystemExit too, ends its call and not the worker
            return Kind.RAISED, describe(error, skip=2)
        finally:
            self.interrupts.end()
            self.request = self.node = None

    def _apply(self, message: dict[str, Any]) -> Any:
        target = message["target"]
        function = find(target) if isinstance(target, str) else target
        args, kwargs = message.pop("args", ()), message.pop("kwargs", {})
        interrupts = self.interrupts
        interrupts.arm()
        try:
            return function(*args, **kwargs)
        finally:
            interrupts.disarm()


def find(target: str) -> Callable[..., Any]:
    """Return what "module:qualified.name" names, importing the module if need be."""
    module_name, _, qualname = target.partition(":")
    module = sys.modules.get(module_name)
    if module is None:
        module = importlib.import_module(module_name)
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    return found
