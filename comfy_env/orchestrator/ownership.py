"""Whose life this process is. Where a client owns its input and output, nothing in it may end or replace it.

A process that serves a client over stdin and stdout is started, held and ended by that client; one that exits and comes
back detached would leave it looking at a dead pipe.
"""

from __future__ import annotations

from comfy_env.orchestrator.problems import NotOurLife


class Ownership:
    """Ours until a client claims it; a claim cannot be undone."""

    def __init__(self) -> None:
        self._client = ""

    def claim(self, client: str) -> None:
        """Say that a client owns this process from here on."""
        self._client = self._client or client

    def must_be_ours(self) -> None:
        """Raise NotOurLife where a client owns this process."""
        if self._client:
            raise NotOurLife(f"{self._client} owns this process's life; it must not replace itself", hint="run `comfy-env serve` beside it")


process = Ownership()
"""The one of this process."""
