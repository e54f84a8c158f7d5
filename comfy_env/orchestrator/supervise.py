"""Who starts this process again when it ends: a supervisor, nobody, or we ourselves. Pure, from facts the caller gathers.

Only evidence about *this* process counts. A marker that was inherited from a parent, or a file that says "container",
says nothing about who started us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comfy_env.orchestrator.restart import Mode

SUPERVISORS = ("launchd", "pm2", "pm2 god daemon")


@dataclass(frozen=True)
class Facts:
    """What is known of this process as it starts. ``told``: what the user says, None for nothing; ``heir``: its predecessor started it."""

    pid: int
    parent: int
    parent_name: str = ""
    environ: Mapping[str, str] | None = None
    told: bool | None = None
    heir: bool = False


@dataclass(frozen=True)
class Life:
    """How this process comes back, and why that is believed."""

    mode: Mode
    why: str


def judge(facts: Facts) -> Life:
    """Return how this process comes back."""
    environ = facts.environ or {}
    if facts.heir:
        return Life(Mode.SPAWN, "its predecessor started it")
    if facts.told is not None:
        return Life(Mode.SUPERVISED if facts.told else Mode.SPAWN, "COMFY_ENV_ORCH_SUPERVISED says so")
    if environ.get("SYSTEMD_EXEC_PID") == str(facts.pid):
        return Life(Mode.SUPERVISED, "systemd started this very process")
    if facts.pid == 1:
        return Life(Mode.NOTIFY, "it is the first process of a container")
    if facts.parent == 1:
        return Life(Mode.SUPERVISED, "the system's first process is its parent")
    if facts.parent_name.lower().startswith(SUPERVISORS):
        return Life(Mode.SUPERVISED, f"{facts.parent_name} is its parent")
    return Life(Mode.SPAWN, "nobody else would start it again")
