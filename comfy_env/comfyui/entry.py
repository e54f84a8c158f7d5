"""What a pack calls: `register_nodes`, in its `__init__.py`."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from comfy_env.comfyui import serializers, snapshot
from comfy_env.comfyui.home import Home
from comfy_env.comfyui.host import Host, host
from comfy_env.comfyui.isolated import Isolated, Node
from comfy_env.comfyui.proxies import v1_class
from comfy_env.comfyui.v3 import v3_class
from comfy_env.packs import legacy
from comfy_env.packs.nodes import IN_WORKER, host_packages, own_mappings, owners, packages
from comfy_env.packs.plan import EnvPlan, declares_envs
from comfy_env.values import EnvPlan as AnyPlan

log = logging.getLogger(__name__)
Mappings = tuple[dict[str, Any], dict[str, str]]


def register_nodes(nodes_package: str = "nodes") -> Mappings:
    """Return a pack's NODE_CLASS_MAPPINGS and NODE_DISPLAY_NAME_MAPPINGS, whose classes run in the pack's environment.

    To be called by the pack's `__init__.py`; the classes themselves are those of its module or package `nodes_package`.
    Starts nothing, builds nothing, imports nothing of the pack. A pack, or a folder of an older pack, that declares no
    environment is imported here.
    """
    scope = sys._getframe(1).f_globals
    begun = time.monotonic()
    folder = os.path.dirname(os.path.abspath(scope["__file__"]))
    if IN_WORKER in scope:
        return own_mappings(scope, scope[IN_WORKER] or (nodes_package,))
    if not declares_envs(folder):
        return own_mappings(scope, (nodes_package,))
    places = homes(Path(folder), scope["__name__"], nodes_package)
    if places and places[0][1].codecs:
        serializers.load(Path(places[0][1].codecs), scope["__name__"])
    found = _registered(host(), places)
    here = own_mappings(scope, host_packages(Path(folder), nodes_package, [home.packages[0] for _, home in places]))
    log.info("%s: %d nodes in %.0f ms", folder, len(found[0]), 1000 * (time.monotonic() - begun))
    return {**here[0], **found[0]}, {**here[1], **found[1]}


def homes(folder: Path, module: str, nodes_package: str) -> list[tuple[AnyPlan, Home]]:
    """Return the environments of a pack, each with where its classes come from."""
    plans = EnvPlan.from_pack(folder)
    codecs = str(legacy.codecs(folder) or "")
    where = packages(folder, plans, nodes_package)
    return [(plan, Home(str(folder), module, (package,), codecs)) for plan, package in zip(plans, where, strict=True)]


def _registered(host: Host, found: list[tuple[AnyPlan, Home]]) -> Mappings:
    classes: dict[str, Any] = {}
    names: dict[str, str] = {}
    for plan, home in found:
        known = snapshot.find(plan, home, host.settings)
        siblings = [other for other, place in found if place.packages == home.packages]
        env = host.add(plan, home, known.only(name for name, owner in owners(known.nodes, siblings).items() if owner is plan))
        _warn(env)
        classes.update({name: _class(env, node) for name, node in env.nodes.items()})
        names.update(env.snapshot.names)
    return classes, names


def _class(env: Isolated, node: Node) -> type:
    """Return the class that stands in for a node's."""
    if node.info.get("api") != "v3" or "broken" in node.info:
        return v1_class(env, node)
    return v3_class(env, node)


def _warn(env: Isolated) -> None:
    """Say what a user should know of a pack whose environment never told its nodes."""
    if env.snapshot.origin == "sources":
        log.warning("the nodes of env %s are shown as far as the sources tell; `comfy-env build %s` asks the pack itself",
                    env.plan.key, Path(env.home.folder))
    for what, detail in env.snapshot.registered:
        log.info("%s wanted to register %s %s, which an isolated pack cannot", env.plan.key, what, detail)
