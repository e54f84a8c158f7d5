"""Runs one call: finds the function, arms the interrupt, tells how it ended."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Optional

from .interrupts import CallInterrupted, Interrupts
from .raised import describe
from .wire import coded
from .wire.kinds import Kind

_OWN = __name__.partition(".")[0] + "."


class Calls:
    """The calls of one worker, one at a time. ``node`` tells which node of a prompt runs, None for a plain function."""

    def __init__(self, interrupts: Interrupts, roots: Sequence[str] = ()) -> None:
        self.interrupts = interrupts
        self._roots = roots
        self._own = {__name__.partition(".")[0]}
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
        function = self._named(target) if isinstance(target, str) else target
        args, kwargs = message.pop("args", ()), message.pop("kwargs", {})
        if not self._is_own(target):   # what is ours opens values by itself, once it imported their pack
            args, kwargs = coded.opened((args, kwargs))
        interrupts = self.interrupts
        interrupts.arm()
        try:
            return function(*args, **kwargs)
        finally:
            interrupts.disarm()

    def _is_own(self, target: Any) -> bool:
        return isinstance(target, str) and target.startswith(_OWN)

    def _named(self, target: str) -> Callable[..., Any]:
        function = find(target)
        top = target.partition(":")[0].partition(".")[0]
        if top not in self._own:
            _check_home(top, self._roots)
            self._own.add(top)
        return function


def find(target: str) -> Callable[..., Any]:
    """Return what "module:qualified.name" names, importing the module if need be.

    The import system is asked each time: a module that another thread is still importing is not whole yet.
    """
    module_name, _, qualname = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _check_home(top: str, roots: Sequence[str]) -> None:
    """Raise ImportError if a module of the environment's own has the name of another one that this process runs already."""
    loaded = getattr(sys.modules.get(top), "__file__", None)
    offered = [os.path.join(root, *parts) for root in roots for parts in ((top, "__init__.py"), (top + ".py",))]
    own = [path for path in offered if os.path.isfile(path)]
    if own and not any(_same(loaded, path) for path in own):
        raise ImportError(f"module {top!r} of this environment ({own[0]}) cannot be used: this process already runs another one of that "
                          f"name ({loaded or 'built in'}); rename it, or give the environment a process of its own (backend venv)")


def _same(loaded: Optional[str], path: str) -> bool:
    return loaded is not None and os.path.exists(loaded) and os.path.samefile(loaded, path)
