"""What a class says of itself without being run: inputs, fingerprints, validation. Asked for on the side lane, too."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..node_packs import finished
from . import plain, schemas

_SCALARS = (int, float, str, bool, type(None))


class Answers:
    """Answers questions about the classes of one pack."""

    def __init__(self, pack: Any) -> None:
        self._pack = pack

    def ask(self, question: str, class_name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return {"value": …}; raises whatever the class's own code raises."""
        cls = self._pack.node_class(class_name)
        return {"value": _QUESTIONS[question](cls, kwargs)}


def is_v3(cls: Any) -> bool:
    """Tell whether a class is of the V3 kind."""
    return hasattr(cls, "define_schema") and hasattr(cls, "GET_BASE_CLASS")


def inputs(cls: Any) -> Any:
    """Return what a class takes, in JSON: INPUT_TYPES, or the schema of a V3 class."""
    return schemas.encode(cls.define_schema()) if is_v3(cls) else plain.encode(cls.INPUT_TYPES())


def fingerprint(cls: Any, kwargs: dict[str, Any]) -> Optional[str]:
    """Return a text that changes when the class's fingerprint does; None for one that never equals itself."""
    ask = prepared(cls, None).fingerprint_inputs if is_v3(cls) else cls.IS_CHANGED
    return mark(finished(ask(**kwargs)))


def validate(cls: Any, kwargs: dict[str, Any]) -> Any:
    """Return the class's verdict on constant inputs: True, or what it says instead."""
    ask = prepared(cls, None).validate_inputs if is_v3(cls) else cls.VALIDATE_INPUTS
    verdict = finished(ask(**kwargs))
    return verdict if verdict is True or verdict is False else str(verdict)


def prepared(cls: Any, hidden: Optional[dict[Any, Any]]) -> Any:
    """Return the clone of a V3 class that one call runs on, with its hidden inputs.

    Core takes them by themselves (0.3.64) or as a part of more (0.8.0), and names its argument accordingly.
    """
    cls.VALIDATE_CLASS()
    wraps = "v3_data" in inspect.signature(cls.PREPARE_CLASS_CLONE).parameters
    return cls.PREPARE_CLASS_CLONE({"hidden_inputs": hidden or {}} if wraps else hidden)


def mark(value: Any) -> Optional[str]:
    """Return a digest of a value the way core's cache compares it; None where core would call it changed."""
    pieces: list[str] = []
    return hashlib.sha256("".join(pieces).encode()).hexdigest()[:24] if _write(value, pieces) else None


def _write(value: Any, pieces: list[str]) -> bool:
    if isinstance(value, _SCALARS):
        pieces.append(f"{type(value).__name__}:{value!r};")
        return value == value
    if isinstance(value, Mapping):
        pieces.append(f"{{{len(value)}")
        return all(_write(key, pieces) and _write(value[key], pieces) for key in sorted(value, key=repr))
    if isinstance(value, Sequence):
        pieces.append(f"[{len(value)}")
        return all(_write(item, pieces) for item in value)
    return False


_QUESTIONS = {"inputs": lambda cls, kwargs: inputs(cls), "fingerprint": fingerprint, "validate": validate}
