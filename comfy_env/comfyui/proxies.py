"""Classes that stand in for a pack's V1 classes: they have what core looks at, and nothing more."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from comfy_env.comfyui import results
from comfy_env.comfyui.asyncs import call_async
from comfy_env.comfyui.isolated import Isolated, Node
from comfy_env.comfyui.signatures import mirrored
from comfy_env.packs.plain import decode

_numbers = itertools.count(1)
_HOST = secrets.token_hex(4)


class Proxy:
    """An instance of a V1 class that lives in a worker; core keeps one per node, and so one twin per node lives there."""

    _comfy_env_home: Isolated
    _comfy_env_node: Node

    def __init__(self) -> None:
        self._comfy_env_twin = Instance(f"{_HOST}:{next(_numbers)}")
        self._comfy_env_home.watch(self, self._comfy_env_twin.key)


class Instance:
    """What the host keeps of an instance: its key, and the state that can travel to the next worker."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.calls = 0
        self.state: dict[str, Any] | None = None
        self.stays = ""

    def take(self, home: Isolated, node: Node, answer: Mapping[str, Any]) -> None:
        """Take over what an answer tells of the twin; a twin that began anew without its state is told in the story."""
        if answer.get("fresh") and self.calls and self.stays:
            line = f"an instance of {node.name} began anew in the new worker: its state stays where it is ({self.stays})"
            home.host.pool.remark(home.plan, line)
        self.calls += 1
        if "state" in answer:
            self.state, self.stays = answer["state"], ""
        elif "stays" in answer:
            self.state, self.stays = None, answer["stays"]


def v1_class(home: Isolated, node: Node) -> type:
    """Return the class that stands in for one of the environment's V1 classes."""
    info = node.info
    attributes = {name: decode(value) for name, value in info.get("attributes", {}).items()}
    members: dict[str, Any] = {
        "RETURN_TYPES": (), "FUNCTION": "run", **attributes,
        "__module__": info.get("module", __name__), "__qualname__": info.get("class", node.name),
        "_comfy_env_home": home, "_comfy_env_node": node,
        "INPUT_TYPES": classmethod(_input_types(home, node)),
    }
    methods = {name: spec for name, spec in node.methods.items() if name in _METHODS}
    members.update({name: _METHODS[name](home, node, name, spec) for name, spec in methods.items()})
    members[members["FUNCTION"]] = _function(home, node, members["FUNCTION"], info.get("function") or _ANY)
    return type(str(info.get("class", node.name)).rpartition(".")[2], (Proxy,), members)


_ANY: Mapping[str, Any] = {"args": ["self"], "more": True, "async": False}


def _input_types(home: Isolated, node: Node) -> Callable[..., Any]:
    def INPUT_TYPES(cls: type) -> Any:
        return home.inputs(node)

    return INPUT_TYPES


def _is_changed(home: Isolated, node: Node, name: str, spec: Mapping[str, Any]) -> Any:
    def is_changed(cls: type, **kwargs: Any) -> Any:
        return home.fingerprint(node, kwargs)

    return classmethod(mirrored(is_changed, name, spec))


def _validate(home: Isolated, node: Node, name: str, spec: Mapping[str, Any]) -> Any:
    def validate(cls: type, **kwargs: Any) -> Any:
        return home.validated(node, plain_types(kwargs))

    return classmethod(mirrored(validate, name, spec))


def plain_types(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return validation's arguments with the types of links as plain names; core's own are a subclass of str."""
    types = kwargs.get("input_types")
    if not isinstance(types, dict):
        return kwargs
    return {**kwargs, "input_types": {name: str.__str__(kind) if isinstance(kind, str) else kind for name, kind in types.items()}}


def _function(home: Isolated, node: Node, name: str, spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the method that runs the node's function in the worker."""
    async def awaited(self: Proxy, **kwargs: Any) -> Any:
        order, callbacks = _prepared(self, home, node, name, kwargs)
        return _finished(self, home, node, await call_async(home, node, order, callbacks))

    def called(self: Proxy, **kwargs: Any) -> Any:
        order, callbacks = _prepared(self, home, node, name, kwargs)
        return _finished(self, home, node, home.call(node, order, callbacks))

    return mirrored(awaited if spec["async"] else called, name, spec)


def _prepared(proxy: Proxy, home: Isolated, node: Node, name: str, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    twin = proxy._comfy_env_twin
    callbacks: dict[str, Any] = {}
    more: dict[str, Any] = {"key": twin.key}
    if twin.state is not None:
        more["has_state"] = True
        callbacks["comfy_env.instance"] = lambda: twin.state
    graphs = _graphs(node, kwargs)
    if graphs:
        graph = kwargs.pop(graphs[0])
        more["graphs"] = graphs
        callbacks["comfy_env.graph"] = lambda question, *args: getattr(graph, question)(*args)
    return home.order(node, name, kwargs, **more), callbacks


def _graphs(node: Node, kwargs: dict[str, Any]) -> list[str]:
    """Return which arguments are the running prompt itself."""
    written = node.info.get("input")
    hidden = written.get("hidden") if isinstance(written, dict) else None
    return [one for one, kind in hidden.items() if kind == "DYNPROMPT" and one in kwargs] if isinstance(hidden, dict) else []


def _finished(proxy: Proxy, home: Isolated, node: Node, answer: dict[str, Any]) -> Any:
    proxy._comfy_env_twin.take(home, node, answer)
    cls = type(proxy)
    home.note_references(answer["value"].get("values", ()), getattr(cls, "RETURN_TYPES", ()))
    return results.rebuilt(answer["value"], getattr(cls, "RETURN_TYPES", ()), getattr(cls, "OUTPUT_IS_LIST", ()))


_METHODS: dict[str, Callable[[Isolated, Node, str, Mapping[str, Any]], Any]] = {
    "IS_CHANGED": _is_changed, "VALIDATE_INPUTS": _validate, "check_lazy_status": _function,
}
