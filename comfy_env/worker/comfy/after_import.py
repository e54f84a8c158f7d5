"""Changes modules of ComfyUI right after a pack imported them, whoever imports them and whenever."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any, Optional

Change = Callable[[Any], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds the modules of a table where they really are, and changes each when it has run."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)
        self._looking: set[str] = set()

    def install(self) -> None:
        """Watch for the modules from now on, and change those that are loaded already."""
        for name in list(self._changes):
            if name in sys.modules:
                self._changes.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        if name not in self._changes or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self._changes[name])
        return spec


class _Then(importlib.abc.Loader):
    """Loads with another loader, then applies a change."""

    def __init__(self, loader: Any, change: Change) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._change(module)
