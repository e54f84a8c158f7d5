"""The tags of `platform.<tag>` overrides and which of them hold on a machine."""

from __future__ import annotations

import platform
import sys

SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}
TAGS = tuple(sorted({*SYSTEMS.values(), *(f"{s}-{m}" for s in SYSTEMS.values() for m in MACHINES.values())}))


def tags_here() -> tuple[str, ...]:
    """Return the tags that hold on this machine, the general one first."""
    system = SYSTEMS.get(sys.platform, sys.platform)
    machine = MACHINES.get(platform.machine().lower(), platform.machine().lower())
    return system, f"{system}-{machine}"
