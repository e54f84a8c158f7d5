"""Classes that stand in for a pack's V3 classes: real V3 classes, whose schema is rebuilt and whose methods run in the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from comfy_env import errors
from comfy_env.comfyui import core, results, schemas
from comfy_env.comfyui.asyncs import call_async
from comfy_env.comfyui.isolated import Isolated, Node
from comfy_env.comfyui.proxies import plain_types
from comfy_env.comfyui.signatures import mirrored

HIDDEN = ("unique_id", "prompt", "extra_pnginfo", "auth_token_comfy_org", "api_key_comfy_org", "comfy_usage_source")


def v3_class(home: Isolated, node: Node) -> type:
    """Return the class that stands in for one of the environment's V3 classes. It overrides nothing but what the author did."""
    info = node.info
    members: dict[str, Any] = {
        "__module__": info.get("module", __name__), "__qualname__": info.get("class", node.name),
        "define_schema": classmethod(_define_schema(home, node)),
        "execute": classmethod(_execute(home, node, info["function"])),
    }
    makers = {"validate_inputs": _validate, "fingerprint_inputs": _fingerprint, "check_lazy_status": _lazy}
    members.update({name: classmethod(makers[name](home, node, spec)) for name, spec in node.methods.items() if name in makers})
    cls: Any = type(str(info.get("class", node.name)).rpartition(".")[2], (core.io().ComfyNode,), members)
    cls.GET_SCHEMA()
    return cls  # type: ignore[no-any-return]


def _define_schema(home: Isolated, node: Node) -> Callable[..., Any]:
    def define_schema(cls: type) -> Any:
        if "broken" in node.info:
            raise errors.ComfyEnvError(f"{node.name}: {node.info['broken']}", env=home.plan.key)
        return schemas.schema(home.declared(node))

    return define_schema


def _execute(home: Isolated, node: Node, spec: Mapping[str, Any]) -> Callable[..., Any]:
    async def awaited(cls: Any, **kwargs: Any) -> Any:
        order, callbacks = _prepared(cls, home, node, "execute", kwargs)
        return _output(cls, await call_async(home, node, order, callbacks))

    def called(cls: Any, **kwargs: Any) -> Any:
        order, callbacks = _prepared(cls, home, node, "execute", kwargs)
        return _output(cls, home.call(node, order, callbacks))

    return mirrored(awaited if spec["async"] else called, "execute", spec)


def _output(cls: Any, answer: dict[str, Any]) -> Any:
    return results.output(answer["value"], cls.RETURN_TYPES, cls.OUTPUT_IS_LIST)


def _lazy(home: Isolated, node: Node, spec: Mapping[str, Any]) -> Callable[..., Any]:
    def check_lazy_status(cls: Any, **kwargs: Any) -> Any:
        order, callbacks = _prepared(cls, home, node, "check_lazy_status", kwargs)
        return results.rebuilt(home.call(node, order, callbacks)["value"])

    return mirrored(check_lazy_status, "check_lazy_status", spec)


def _validate(home: Isolated, node: Node, spec: Mapping[str, Any]) -> Callable[..., Any]:
    def validate_inputs(cls: Any, **kwargs: Any) -> Any:
        return home.validated(node, plain_types(kwargs))

    return mirrored(validate_inputs, "validate_inputs", spec)


def _fingerprint(home: Isolated, node: Node, spec: Mapping[str, Any]) -> Callable[..., Any]:
    def fingerprint_inputs(cls: Any, **kwargs: Any) -> Any:
        return home.fingerprint(node, kwargs)

    return mirrored(fingerprint_inputs, "fingerprint_inputs", spec)


def _prepared(cls: Any, home: Isolated, node: Node, verb: str, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the order with the hidden inputs core gave the class's clone for this call."""
    holder = cls.hidden
    hidden = {name: value for name in HIDDEN if (value := getattr(holder, name, None)) is not None}
    more: dict[str, Any] = {"hidden": hidden} if hidden else {}
    callbacks: dict[str, Any] = {}
    graph = getattr(holder, "dynprompt", None)
    if graph is not None:
        more["graphs"] = ["dynprompt"]
        callbacks["comfy_env.graph"] = lambda question, *args: getattr(graph, question)(*args)
    return home.order(node, verb, kwargs, **more), callbacks
