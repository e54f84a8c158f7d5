"""Which values and links an input takes: the rules ComfyUI applies before it runs a workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comfy_env.runner.catalog import Input
from comfy_env.runner.values import shown

LINKED_ONLY = frozenset({
    "IMAGE", "MASK", "LATENT", "AUDIO", "VIDEO", "SIGMAS", "NOISE", "SAMPLER", "GUIDER",
    "MODEL", "CLIP", "VAE", "CONDITIONING", "CONTROL_NET", "CLIP_VISION", "STYLE_MODEL", "UPSCALE_MODEL",
})
"""Types whose values no workflow file can hold."""

_CONVERT: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


def fits(received: Any, wanted: Any) -> bool:
    """Say whether an output of type `received` may feed an input of type `wanted`; both may be unions or combos."""
    if received == wanted or "*" in (received, wanted):
        return True
    if isinstance(received, str) and isinstance(wanted, str):
        return not set(_names(received)).isdisjoint(_names(wanted))
    return [_kind(received), _kind(wanted)] in ([list, "COMBO"], ["COMBO", list])


def _names(union: str) -> list[str]:
    return [name.strip() for name in union.split(",")]


def _kind(type_: Any) -> Any:
    return list if isinstance(type_, list) else type_


def told(type_: Any) -> str:
    """Return a type in words."""
    return type_ if isinstance(type_, str) else f"a choice of {_listed(type_)}" if isinstance(type_, list) else shown(type_)


def _listed(choices: list[Any]) -> str:
    first = [choice if isinstance(choice, str) and len(choice) < 80 else shown(choice) for choice in choices[:8]]
    return ", ".join(first) + (" …" if len(choices) > 8 else "")


def is_linked_only(declared: Input) -> bool:
    """Say whether no constant can be the input's value."""
    return isinstance(declared.type, str) and set(_names(declared.type)) <= LINKED_ONLY


def converted(declared: Input, value: Any) -> Any:
    """Return the value as the input's type; raises ValueError that says why it cannot be."""
    if is_linked_only(declared):
        raise ValueError(f"{declared.type} takes a link, not {shown(value)}")
    convert = _CONVERT.get(declared.type) if isinstance(declared.type, str) else None
    if convert is None:
        return value
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{shown(value)} is not {declared.type}") from None


def refusal(declared: Input, value: Any) -> str:
    """Return why a converted value is out of bounds, '' if it is not."""
    choices = _choices(declared)
    if choices is not None:
        return "" if value in choices else f"{shown(value)} is not among the choices: {_listed(choices)}"
    if not isinstance(value, (int, float)):
        return ""
    low, high = _bound(declared, "min"), _bound(declared, "max")
    if low is not None and value < low:
        return f"{shown(value)} is below the least, {low}"
    return f"{shown(value)} is above the most, {high}" if high is not None and value > high else ""


def _bound(declared: Input, name: str) -> int | float | None:
    """Return a declared bound; one that is no number bounds nothing."""
    bound = declared.options.get(name)
    return bound if isinstance(bound, (int, float)) else None


def _choices(declared: Input) -> list[Any] | None:
    if isinstance(declared.type, list):
        return declared.type
    options = declared.options.get("options")
    return options if declared.type == "COMBO" and isinstance(options, list) else None
