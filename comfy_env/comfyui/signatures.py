"""Gives functions that stand in for others the signatures core reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def mirrored(function: Callable[..., Any], name: str, spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function under another's name and signature, as `inspect` tells it."""
    function.__name__ = name
    function.__qualname__ = name
    parameters = [inspect.Parameter(arg, inspect.Parameter.POSITIONAL_OR_KEYWORD) for arg in _distinct(spec["args"])]
    parameters += [inspect.Parameter(arg, inspect.Parameter.KEYWORD_ONLY) for arg in spec.get("keywords", ())]
    if spec["more"]:
        parameters.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _distinct(names: list[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name != "kwargs"]
