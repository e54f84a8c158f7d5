"""The module `server` in a worker: messages go to the host, routes are recorded, everything else says it is not here.

A pack that registers routes, handlers or middlewares when it is imported keeps its nodes; what it registered is told to
the host, which shows it.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

from . import where
from .outbox import outbox

VERBS = ("get", "post", "put", "delete", "patch", "head", "options", "view", "static", "route")


class Recorded:
    """What packs wanted to register: [what, detail]."""

    def __init__(self) -> None:
        self.entries: list[list[str]] = []

    def add(self, what: str, detail: Any) -> None:
        self.entries.append([what, str(detail)])


recorded = Recorded()


def _missing(owner: str, name: str) -> AttributeError:
    return AttributeError(f"{owner}.{name} is not available in an isolated worker")


class _Recorder:
    """Takes any registration by its method's name and hands back what decorators hand back."""

    def __init__(self, owner: str, names: tuple[str, ...], decorates: bool) -> None:
        self._owner, self._names, self._decorates = owner, names, decorates

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._names:
            raise _missing(self._owner, name)

        def register(*args: Any, **kwargs: Any) -> Any:
            verb, *rest = (name.removeprefix("add_"), *args) if "route" not in name else (str(args[0]), *args[1:])
            recorded.add(f"{verb.upper()} route", rest[0] if rest else "")
            return (lambda function: function) if self._decorates else None

        return register


class _App:
    """The web application as far as packs touch it at import."""

    router = _Recorder("PromptServer.instance.app.router", tuple(f"add_{verb}" for verb in VERBS), False)

    def __init__(self) -> None:
        self.middlewares: list[Any] = []

    def add_routes(self, routes: Any) -> None:
        for route in routes:
            recorded.add(f"{getattr(route, 'method', 'GET')} route", getattr(route, "path", route))

    def __getattr__(self, name: str) -> Any:
        raise _missing("PromptServer.instance.app", name)


class _Instance:
    """`PromptServer.instance`."""

    client_id = None
    sockets_metadata: dict[str, Any] = {}

    def __init__(self) -> None:
        self.routes = _Recorder("PromptServer.instance.routes", VERBS, True)
        self.app = _App()

    @property
    def last_node_id(self) -> str:
        return where.here().node

    @property
    def last_prompt_id(self) -> str:
        return where.here().prompt

    def send_sync(self, event: Any, data: Any, sid: Any = None) -> None:
        outbox.message("sync", event, data, sid)

    async def send(self, event: Any, data: Any, sid: Any = None) -> None:
        self.send_sync(event, data, sid)

    def send_progress_text(self, text: Any, node_id: Any, sid: Any = None) -> None:
        outbox.message("text", text, node_id, sid)

    def add_on_prompt_handler(self, handler: Any) -> None:
        recorded.add("prompt handler", getattr(handler, "__qualname__", handler))

    def __getattr__(self, name: str) -> Any:
        raise _missing("PromptServer.instance", name)


class PromptServer:
    """Holds the one instance, as ComfyUI's own class does."""

    instance = _Instance()


def module() -> types.ModuleType:
    """Return the module to import as `server`."""
    made = types.ModuleType("server", __doc__)
    made.PromptServer = PromptServer   # type: ignore[attr-defined]
    made.__getattr__ = lambda name: _absent(name)   # type: ignore[method-assign]
    return made


def _absent(name: str) -> Any:
    if name == "web":   # packs take aiohttp's module from here
        return importlib.import_module("aiohttp.web")
    raise _missing("server", name)
