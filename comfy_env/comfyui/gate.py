"""Looks at what comes in over the web before core does: ends menus' memos, refuses impossible links, makes `/free` reach workers.

One middleware, put into the server's application while it still takes some. It answers nothing itself but a prompt that
cannot work, in core's own words for node errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from comfy_env.comfyui import core
from comfy_env.comfyui.isolated import Isolated
from comfy_env.comfyui.prompts import Epoch
from comfy_env.packs.nodes import OBJECT_TYPES

log = logging.getLogger(__name__)
ASKING = ("/prompt", "/upload/")


class Gate:
    """``homes`` are the environments that registered, ``free`` has every worker give back what it holds."""

    def __init__(self, epoch: Epoch, homes: Callable[[], Mapping[str, Isolated]], free: Callable[[], None]) -> None:
        self._epoch, self._homes, self._free = epoch, homes, free

    def install(self) -> bool:
        """Stand in the way of requests from now on; False where the server takes no middleware any more."""
        app = getattr(core.server(), "app", None)
        web = getattr(core.loaded("server"), "web", None)
        if app is None or web is None or getattr(app, "frozen", True):
            return False

        @web.middleware
        async def gate(request: Any, handler: Any) -> Any:
            path = request.path.removeprefix("/api")
            if request.method != "POST":
                return await handler(request)
            if path.startswith(ASKING):
                self._epoch.number += 1
            if path == "/prompt":
                refused = refusals((await core.json_of(request)).get("prompt"), self._homes())
                if refused:
                    return web.json_response(_answer(refused), status=400)
            response = await handler(request)
            if path == "/free":
                self._free()
            return response

        app.middlewares.append(gate)
        return True


def refusals(prompt: Any, homes: Mapping[str, Isolated]) -> dict[str, Any]:
    """Return core's node errors for links that carry what cannot leave the process that makes it."""
    if not isinstance(prompt, dict):
        return {}
    owner = {name: env for env in homes.values() for name in env.nodes}
    found: dict[str, Any] = {}
    for id, node in prompt.items():
        kind = str(node.get("class_type")) if isinstance(node, dict) else ""
        wrong = [error for name, link in _links(node) if (error := _wrong(prompt, owner, kind, name, link)) is not None]
        if wrong:
            found[id] = {"errors": wrong, "dependent_outputs": [], "class_type": kind}
    return found


def _links(node: Any) -> list[tuple[str, list[Any]]]:
    inputs = node.get("inputs") if isinstance(node, dict) else None
    pairs = inputs.items() if isinstance(inputs, dict) else ()
    return [(name, value) for name, value in pairs if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)]


def _wrong(prompt: dict[str, Any], owner: dict[str, Isolated], taker: str, name: str, link: list[Any]) -> dict[str, Any] | None:
    """Return the error of one link, None if what it carries can get there as far as is known.

    A reference may pass through ComfyUI's own nodes that take anything, and come back to where it belongs.
    """
    consumer, source = owner.get(taker), prompt.get(link[0])
    kind = source.get("class_type") if isinstance(source, dict) else None
    producer = owner.get(str(kind))
    if producer is consumer:
        return None
    carried = _type_of(str(kind), link[1])
    known = OBJECT_TYPES if producer is None else OBJECT_TYPES | producer.reference_types
    if carried not in known or (consumer is None and not _takes(taker, name, carried)):
        return None
    made, wanted = (f"the environment {env.plan.key}" if env else "ComfyUI's own process" for env in (producer, consumer))
    details = f"{name}: a {carried} of {kind} (node {link[0]}) lives in {made} and cannot go to {wanted}"
    return {"type": "isolated_link", "message": "A value cannot leave the process that makes it", "details": details,
            "extra_info": {"input_name": name, "linked_node": link, "received_type": carried}}


def _takes(kind: str, name: str, carried: str) -> bool:
    """Tell whether a class of ComfyUI's own asks for the very type on an input."""
    cls = getattr(core.loaded("nodes"), "NODE_CLASS_MAPPINGS", {}).get(kind)
    try:
        groups = cls.INPUT_TYPES() if cls is not None else {}
    except Exception as error:  # a class's own code: core will say what is wrong with it
        log.debug("%s cannot say what it takes: %s", kind, error)
        return False
    declared = [groups[group][name] for group in ("required", "optional") if name in groups.get(group, {})]
    return bool(declared) and isinstance(declared[0][0], str) and str.__str__(declared[0][0]) == carried


def _type_of(kind: str, slot: Any) -> str:
    returns = getattr(getattr(core.loaded("nodes"), "NODE_CLASS_MAPPINGS", {}).get(kind), "RETURN_TYPES", ())
    fits = isinstance(slot, int) and 0 <= slot < len(returns) and isinstance(returns[slot], str)
    return str.__str__(returns[slot]) if fits else ""


def _answer(refused: dict[str, Any]) -> dict[str, Any]:
    lines = [f"{error['message']}: {error['details']}" for node in refused.values() for error in node["errors"]]
    for line in lines:
        log.error("the prompt was refused: %s", line)
    error = {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation", "details": "\n".join(lines),
             "extra_info": {}}
    return {"error": error, "node_errors": refused}
