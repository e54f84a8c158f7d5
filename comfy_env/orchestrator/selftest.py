"""Whether the code on disk can serve: all of it can be imported. Run in a new interpreter.

The same imports are what a service does when it starts: nothing of this package is imported after that, so the disk may
be changed under a running one.
"""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import comfy_env
from comfy_env.orchestrator import devwatch

log = logging.getLogger(__name__)

ROOMS = ("backends", "envs", "hooks", "lifecycle", "orchestrator", "packs", "pool", "process", "transport")
OPTIONAL = ("torch", "numpy", "PIL", "rattler", "mcp")
"""Packages that may be missing: what needs them does without or says so."""


def names() -> Iterator[str]:
    """Yield every module a service may ever need, in an order that does not matter."""
    for room in ROOMS:
        package = f"comfy_env.{room}"
        yield package
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                yield module.name
    yield from (f"comfy_env.{name}" for name in ("errors", "settings", "values", "ports"))


def import_all() -> None:
    """Import everything of ours now; raises what an import raises, but for optional packages that are missing."""
    for name in names():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in OPTIONAL:
                raise
            log.debug("%s is left out: %s", name, missing)


def result() -> dict[str, Any]:
    """Return what was found, as one JSON document."""
    before = devwatch.fingerprint(devwatch.snapshot())
    problem = _import_problem()
    return {
        "ok": not problem,
        "problem": problem,
        "version": comfy_env.__version__,
        "fingerprint": before,
        "python": sys.version.split()[0],
    }


def _import_problem() -> str:
    try:
        import_all()
    except Exception as error:  # whatever importing broken code raises is what is told
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> int:
    """Write the document and end with 0 where the code can serve."""
    found = result()
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["ok"] else 1
