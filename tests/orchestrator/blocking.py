"""A plugin whose blocker says what a file says, for services started by tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from comfy_env.hooks.specs import hookimpl
from comfy_env.values import Busy, Idle, Unknown


class Blocking:
    @hookimpl
    def comfy_env_idle_blockers(self):
        return {"file": self._ask}

    @hookimpl
    def comfy_env_update_filter(self, kind, target):
        path = Path(os.environ["TOWN_SAYS"]).with_suffix(".filter")
        while path.exists() and path.read_text() == "hang":
            time.sleep(0.05)
        return "not on a Monday" if path.exists() else None

    def _ask(self):
        said = Path(os.environ["TOWN_SAYS"]).read_text()
        if said == "hang":
            time.sleep(3)
        return {"idle": Idle(), "busy": Busy("the file says so"), "unknown": Unknown("the file does not know")}.get(said, Idle())


plugin = Blocking()
