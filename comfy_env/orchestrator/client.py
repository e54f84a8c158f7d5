"""Asking a running service, for commands and tools: standard library only, patient while it changes hands."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import auth, instance
from comfy_env.orchestrator.problems import Refused
from comfy_env.orchestrator.settings import OrchestratorSettings

PATIENCE = 20.0
ANSWER = 60.0
_AGAIN = 0.1


class NotServed(ComfyEnvError):
    """No service runs over this state folder."""


class Client:
    """One service, found by its state folder. Its address is looked up for each question: it may have been replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def found(cls, folder: Path | None = None) -> Client:
        """Return the client of the instance that the settings name; raises NotServed."""
        folder = instance.state_path(folder or OrchestratorSettings.read().state_dir)
        if not instance.is_served(folder) or instance.known_owner(folder) is None:
            raise NotServed(f"no service runs over {folder}", hint="comfy-env serve")
        return cls(folder)

    def get(self, path: str) -> dict[str, Any]:
        return self._patient("GET", path, None)

    def do(self, what: str, **facts: Any) -> dict[str, Any]:
        """Have the service do one of its deeds; see `ServiceDesk.act`."""
        return self._patient("POST", f"/api/do/{what}", facts)

    def _patient(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask until the answer is one: while the service changes hands it says `retry`."""
        until = time.monotonic() + PATIENCE
        while True:
            status, document = self._once(method, path, body)
            if status == 200:
                return document
            why = str(document.get("error") or document.get("why") or f"status {status}")
            if status != 503 or time.monotonic() > until:
                raise Refused(why)
            time.sleep(_AGAIN)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, dict[str, Any]]:
        owner = instance.known_owner(self.folder)
        if owner is None:
            raise NotServed(f"no service runs over {self.folder}", hint="comfy-env serve")
        parts = urlsplit(owner.url)
        connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=ANSWER)
        with instance.usable(self.folder):
            token = auth.known_token(self.folder)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, _document(answer.read())
        except (OSError, http.client.HTTPException) as problem:
            raise NotServed(f"the service at {owner.url} does not answer: {problem}", hint="comfy-env serve") from problem
        finally:
            connection.close()


def _document(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {"error": text[:200].decode(errors="replace")}
    return document if isinstance(document, dict) else {"value": document}
