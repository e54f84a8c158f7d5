"""Environment variables that look like settings of this package and are none: a misspelled one would change nothing, silently."""

from __future__ import annotations

from comfy_env.orchestrator.settings import OrchestratorSettings
from comfy_env.settings import Settings, strangers, variables


def unknown_variables() -> list[tuple[str, str]]:
    """Return each variable that nobody reads with what to do about it."""
    return [(name, f"did you mean {near}?" if near else "docs/reference/settings.md lists them all")
            for name, near in strangers(variables(Settings, OrchestratorSettings))]


def warnings() -> list[str]:
    """Return a line for each variable that nobody reads."""
    return [f"{name} is set, but it is no setting: {hint}" for name, hint in unknown_variables()]
