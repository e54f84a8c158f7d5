"""The activation of each environment a worker is started in: read from its build, or found out once where none was kept."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from comfy_env.backends.pixi import activation, prefixes
from comfy_env.backends.pixi.activation import Activation
from comfy_env.errors import SpawnFailed
from comfy_env.values import Launch

log = logging.getLogger(__name__)


class Activations:
    """Remembers what was found out for environments we did not build."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, float], Activation] = {}

    def of(self, interpreter: Path, launch: Launch) -> Activation | None:
        """Return what activating the interpreter's environment changes, None where it is no conda environment."""
        prefix = prefixes.prefix_of(interpreter)
        if not (prefix / "conda-meta").is_dir():
            return None
        build = prefixes.build_of(prefix)
        kept = _kept(build, launch) if build else None
        return self._once(prefix, launch) if kept is None else kept

    def _once(self, prefix: Path, launch: Launch) -> Activation:
        key = (str(prefix), (prefix / "conda-meta").stat().st_mtime)
        with self._lock:
            if key not in self._found:
                before = {name: value for name, value in launch.variables.items() if not name.startswith("COMFY_ENV_")}
                self._found[key], said = activation.capture(prefix, before, env=launch.env)
                log.debug("activating %s said: %s", prefix, said)
            return self._found[key]


def _kept(build: Path, launch: Launch) -> Activation | None:
    try:
        return activation.read(build)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpawnFailed(
            f"{build / activation.FILE}, which says what activating changes, is damaged: {error}", env=launch.env,
            generation=launch.generation, hint="`comfy-env remove`, then `comfy-env build` makes the environment anew",
        ) from None
