"""`comfy-env backends`: every backend that is offered, also one that cannot be loaded."""

from __future__ import annotations

import argparse
from typing import Any

from comfy_env.cli.choose import refusal
from comfy_env.cli.exits import Exit
from comfy_env.cli.screen import Screen
from comfy_env.errors import BackendError
from comfy_env.hooks import Registry


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """List the backends; ends with 9 if one cannot be loaded."""
    registry = Registry()
    found = [described(registry, name) for name in registry.names()]
    screen.document({"backends": found})
    screen.table(("BACKEND", "FROM", "CAPABILITIES", "PROBLEM"),
                 [(one["name"], ", ".join(one["owners"]), ", ".join(one["capabilities"]), one["problem"]) for one in found])
    return Exit.BACKEND if any(one["problem"] for one in found) else Exit.DONE


def described(registry: Registry, name: str) -> dict[str, Any]:
    """Return what is known of a backend."""
    owners = sorted({offer.owner for offer in registry.offers() if offer.name == name})
    try:
        capabilities = sorted(registry.backend(name).capabilities)
    except BackendError as error:
        return {"name": name, "owners": owners, "capabilities": [], "problem": refusal(error)}
    return {"name": name, "owners": owners, "capabilities": capabilities, "problem": ""}
