"""How a call ended, as its session tells it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from comfy_env.worker.wire import named
from comfy_env.worker.wire.kinds import Kind


@dataclass(frozen=True)
class RemoteError:
    """An exception that was raised in a worker, in plain values."""

    module: str
    qualname: str
    args: tuple[Any, ...]
    text: str
    traceback: str

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> RemoteError:
        """Return the error a RAISED message tells of; what is missing is empty."""
        names = message.get("type")
        module, qualname = names if isinstance(names, (list, tuple)) and len(names) == 2 else ("", "Exception")
        args = message.get("args")
        return cls(str(module), str(qualname), args if isinstance(args, tuple) else (), str(message.get("text", "")),
                   str(message.get("traceback", "")))

    @property
    def type_name(self) -> str:
        return self.qualname if self.module in ("", "builtins") else f"{self.module}.{self.qualname}"

    def exception(self) -> BaseException | None:
        """Return the exception rebuilt, if its class is loaded in this process; no code of the class runs."""
        module = sys.modules.get(self.module)
        cls = None if module is None else named.walk(module, self.qualname)
        if not isinstance(cls, type) or not issubclass(cls, Exception):
            return None
        return named.blank_exception(cls, self.args)


_REPLY = Kind.REPLY


class Answer(NamedTuple):
    """How a call ended. ``kind`` is REPLY (then ``value``), RAISED (then ``error``), INTERRUPTED or REFUSED (then
    ``refusal``: "encode", "decode", "reference" or "busy", and ``text``). ``held`` is bytes the worker holds, None: not told;
    ``imported`` are heavy modules it has imported and not told before.
    """

    kind: Kind
    value: Any = None
    error: RemoteError | None = None
    refusal: str = ""
    text: str = ""
    held: int | None = None
    imported: tuple[str, ...] = ()

    @classmethod
    def read(cls, kind: int, message: Any) -> Answer:
        """Return the answer that a frame of one of the four kinds gives."""
        facts = message if isinstance(message, dict) else {}
        held = facts.get("held")
        held = held if type(held) is int else None
        if kind == _REPLY:
            return cls(_REPLY, facts.get("value"), None, "", "", held, _names(facts))
        if kind == Kind.RAISED:
            return cls(Kind.RAISED, error=RemoteError.read(facts), held=held, imported=_names(facts))
        return cls(Kind(kind), refusal=str(facts.get("error", "")), text=str(facts.get("text", "")), held=held,
                   imported=_names(facts))


def _names(facts: Mapping[str, Any]) -> tuple[str, ...]:
    told = facts.get("imported")
    return tuple(name for name in told if isinstance(name, str)) if isinstance(told, list) else ()
