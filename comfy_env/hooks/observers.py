"""Telling observers: each hears every event, none can hurt the pool or another observer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from comfy_env.hooks.checks import OBSERVER_SPECS, PREFIX, Manager

log = logging.getLogger(__name__)


class Observers:
    """The plugins that hear what happens. A plugin with a misspelled hook is refused (BackendError)."""

    def __init__(self, plugins: Iterable[Any] = ()) -> None:
        self._manager = Manager(OBSERVER_SPECS)
        self._complained: set[tuple[int, str]] = set()
        self._count = 0   # asked at every event: counting the manager's plugins costs a call's worth of time
        self._heard: dict[str, bool] = {}
        for plugin in plugins:
            self.add(plugin)

    def __len__(self) -> int:
        return self._count

    def add(self, plugin: Any, what: str = "") -> None:
        """Register one more observer; raises BackendError if its hooks are wrong."""
        self._manager.admit(plugin, what or f"observer {plugin!r}", "observer")
        self._count = len(self._manager.get_plugins())
        self._heard.clear()

    def hears(self, name: str) -> bool:
        """Tell whether any observer listens to a hook; asked at every event, so the answer is remembered."""
        if name not in self._heard:
            self._heard[name] = bool(getattr(self._manager.hook, PREFIX + name).get_hookimpls())
        return self._heard[name]

    def tell(self, name: str, facts: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Call one hook (`worker_born` or `comfy_env_worker_born`) on every observer; what they raise is logged once."""
        hook = name if name.startswith(PREFIX) else PREFIX + name
        told = {**(facts or {}), **more}
        for impl in getattr(self._manager.hook, hook).get_hookimpls():
            self._tell_one(hook, impl, told)

    def _tell_one(self, hook: str, impl: Any, facts: dict[str, Any]) -> None:
        try:
            impl.function(*(facts[argument] for argument in impl.argnames))
        except (Exception, SystemExit, GeneratorExit):  # an observer is somebody else's code and only watches: the pool goes on
            if (id(impl.plugin), hook) not in self._complained:
                self._complained.add((id(impl.plugin), hook))
                log.exception("observer %s: %s raised; this is told once", impl.plugin_name, hook)
