"""A setting that is looked up anew at every tick, where the pool's settings came from the environment."""

from __future__ import annotations

import logging
from typing import Any

from comfy_env.errors import PlanError
from comfy_env.settings import Settings

log = logging.getLogger(__name__)


class Reread:
    """``value`` is the last one that could be used; one that cannot be is told once, by its variable's name."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name
        self.value: Any = getattr(settings, name)
        self._is_live = settings.from_environment
        self._refused = ""

    def look(self) -> Any:
        """Return what the setting is now."""
        if self._is_live:
            try:
                self.value, self._refused = Settings.read_one(self.name), ""
            except PlanError as refused:
                self._tell(str(refused))
        return self.value

    def _tell(self, refused: str) -> None:
        if refused != self._refused:
            self._refused = refused
            log.warning("%s; it stays %s", refused, self.value)
